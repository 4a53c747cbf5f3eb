//! `cargo xtask`: the project's own commands. Every command that needs the tools calls [`setup::ensure`] itself.

mod bare;
mod bench;
mod deb;
mod debian;
mod demo;
mod exec;
mod replay;
mod setup;
mod test;
#[cfg(test)]
mod tidy;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Project commands of governor", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one of these commands on a minimal Debian, from a clean clone
    Bare(bare::Args),
    /// Find or install what the build needs, into the build folder
    Setup(setup::Args),
    /// Show the governor working on real traffic
    Demo(demo::Args),
    /// Run every check and test
    Test(test::Args),
    /// Measure what the governor costs, against its targets
    Bench(bench::Args),
    /// Build a Debian package
    Deb(deb::Args),
    /// Put recorded decisions to the engine once more
    Replay(replay::Args),
    /// Run the kernel tests on other kernels, emulated
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bare(args) => bare::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Deb(args) => deb::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Vm(args) => vm::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the command's own last word")]
            {
                eprintln!("xtask: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
