//! The daemon's command line. Exit codes: 0 stopped by a signal, 1 it cannot start or run, 2 usage.

use clap::{CommandFactory, Parser, ValueEnum};
use governor_user::config;
use governor_user::daemon;
use governor_user::daemon::signals::Signals;
use governor_user::node::settings::Settings;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Governs connections and admission on a gateway node
#[derive(Debug, Parser)]
#[command(name = "governord", version)]
struct Cli {
    /// Configuration file [default: /etc/governor/governor.toml if it is there]
    #[arg(long, value_name = "FILE", env = "GOVERNOR_CONFIG")]
    config: Option<PathBuf>,
    /// Check the configuration and exit: 0 if it is valid, 1 if not
    #[arg(long)]
    check: bool,
    /// Print the default configuration file and exit
    #[arg(long)]
    print_default_config: bool,
    /// Print the manual page and exit, for packages
    #[arg(long, hide = true)]
    print_manual: bool,
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// What is logged, e.g. `debug` or `governor_user::daemon=trace`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "GOVERNOR_LOG")]
    log: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut std::io::stderr(), &format!("governord: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if cli.print_default_config {
        say(&mut std::io::stdout(), &config::template::default_file());
        return Ok(());
    }
    if cli.print_manual {
        return Ok(governor_user::cli::daemon_page(Cli::command(), &mut std::io::stdout())?);
    }
    let file = cli.config.clone().or_else(config::default_file);
    if cli.check {
        let (loaded, note) = Settings::check(file)?;
        for line in loaded.warnings.iter().map(|warning| format!("warning: {warning}\n")) {
            say(&mut std::io::stderr(), &line);
        }
        if let Some(note) = note {
            say(&mut std::io::stderr(), &format!("note: {note}\n"));
        }
        say(&mut std::io::stdout(), "the configuration is valid\n");
        return Ok(());
    }
    // Before the state folder is opened: what is moved aside there is logged.
    start_log(cli)?;
    daemon::log_panics();
    // One thread: the driver, its sessions and its surfaces share one core and never wait for each other's locks. The
    // kernel plane has a thread of its own.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        // Before anything that takes time: until then a SIGHUP ends the process.
        let signals = Signals::register()?;
        daemon::run(Settings::load(file)?, signals).await
    })
}

fn start_log(cli: &Cli) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&cli.log)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            log.with_ansi(colour).with_target(false).init();
        }
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Writes to a stream whose reader may have gone, which is no error.
fn say(stream: &mut impl Write, text: &str) {
    drop(stream.write_all(text.as_bytes()));
}
