//! A gateway on Pingora that asks the governor: the same as the example `gateway` in another frame. Pingora calls a
//! trait's methods at each step of a request; `gateway` says what to do there. This file only starts the two.

mod gateway;

use clap::Parser;
use gateway::Gateway;
use governor_client::{Config, Governor};
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A gateway on Pingora.
#[derive(Debug, Parser)]
struct Cli {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Host and port of the provider
    #[arg(long)]
    upstream: SocketAddr,
    /// The governor's proxy socket
    #[arg(long, default_value = "/run/governor/proxy.sock")]
    socket: PathBuf,
    /// The governor's pool that stands for the provider
    #[arg(long, default_value = "chat")]
    pool: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cli = Cli::parse();
    // Pingora's services bring runtimes of their own; the session with the governor lives in this one, for all of them.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let governor = {
        let _inside = runtime.enter();
        Governor::start(Config { name: "pingora".to_owned(), ..Config::new(&cli.socket) })
    };
    // After SIGTERM running streams may go on for ten seconds. Two tries: an account that refuses is moved away from once.
    let conf = ServerConf {
        max_retries: 2,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(10),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let gateway = Gateway::new(governor, &cli.pool, cli.upstream);
    let mut service = pingora_proxy::http_proxy_service(&server.configuration, gateway);
    service.add_tcp(&cli.listen.to_string());
    server.add_service(service);
    server.run(RunArgs::default());
    Ok(())
}
