//! `test-field`: what a trial of the installed package needs beside it, for machines with nothing else.
//!
//! - `confine UNIT COMMAND…`: becomes the command, confined as the systemd unit confines its service
//! - `calls UNIT`: prints the system calls that the unit leaves over, one a line, `here` after those of this architecture
//! - `serve BACKLOG COUNT`: a server whose backlog is too short for bursts of COUNT clients, which come until it is killed;
//!   prints its port
//! - `admit SOCKET POOL`: asks for a slot as a proxy does; prints its lease's member, gives it back when its input ends

use governor_client::{AcquireRequest, Config, Governor, NodeSecret};
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use support::machine::confine::{confine, numbered};
use support::machine::unit::{Confinement, groups_of_systemd};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Longest wait for a daemon or a grant.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between bursts: the tuner has to see the queue empty.
const PAUSE: Duration = Duration::from_millis(400);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["confine", unit, program, rest @ ..] => {
            confine(&read(unit)?)?;
            Err(Command::new(program).args(rest).exec().into())
        }
        ["calls", unit] => calls(&read(unit)?.calls),
        ["serve", backlog, count] => serve(backlog.parse()?, count.parse()?),
        ["admit", socket, pool] => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(admit(Path::new(socket), pool))
        }
        _ => {
            Err("usage: test-field confine UNIT COMMAND… | calls UNIT | serve BACKLOG COUNT | admit SOCKET POOL".into())
        }
    }
}

fn read(unit: &str) -> Outcome<Confinement> {
    Ok(Confinement::of(&std::fs::read_to_string(unit)?, &groups_of_systemd()?)?)
}

fn calls(names: &BTreeSet<String>) -> Outcome<()> {
    let here = numbered(names);
    let mark = |name: &str| if here.contains(&name) { " here" } else { "" };
    Ok(names.iter().try_for_each(|name| say(&format!("{name}{}", mark(name))))?)
}

fn serve(backlog: i32, count: usize) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, backlog)?;
    let address = listener.local_addr()?;
    say(&address.port().to_string())?;
    loop {
        let crowd: Vec<_> = (0..count).map(|_| thread::spawn(move || TcpStream::connect(address))).collect();
        // The queue fills before the first is accepted.
        thread::sleep(Duration::from_millis(30));
        listener.set_nonblocking(true)?;
        while is_waiting(&listener)? || crowd.iter().any(|client| !client.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        for client in crowd {
            client.join().map_err(|_| "a client panicked")??;
        }
        thread::sleep(PAUSE);
    }
}

/// Accepts and closes one connection, if one waits.
fn is_waiting(listener: &TcpListener) -> Outcome<bool> {
    match listener.accept() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn admit(socket: &Path, pool: &str) -> Outcome<()> {
    let governor = Governor::start(Config {
        name: "test-field".to_owned(),
        secret: NodeSecret::new(b"test-field").expect("it is not empty"),
        ..Config::new(socket)
    });
    let mut connected = governor.connected();
    tokio::time::timeout(PATIENCE, connected.wait_for(|connected| *connected)).await.map_err(|_| "no session")??;
    let asked = governor.acquire(AcquireRequest::new(pool).key(governor.key(b"test-field")));
    let lease = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| "no answer")??;
    say(&format!("granted {lease:?}"))?;
    // Until whoever started it is done: the lease is held meanwhile.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    drop(lease);
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
