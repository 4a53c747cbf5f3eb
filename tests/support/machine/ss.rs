//! What `ss` says: the second opinion that observations are held against.

use crate::machine::netns::Netns;
use std::process::Command;

/// A LISTEN row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Local port.
    pub port: u16,
    /// Recv-Q: connections in the accept queue.
    pub depth: u32,
    /// Send-Q: the backlog.
    pub backlog: u32,
}

/// The TCP listeners of a namespace, by port.
///
/// # Panics
/// When `ss` does not run or prints something else than a table.
#[must_use]
pub fn listeners(namespace: &Netns) -> Vec<Listener> {
    let mut rows: Vec<_> = ss(namespace, &["-tlnH"]).lines().map(listener).collect();
    rows.sort_unstable();
    rows
}

/// Open connections whose local port is (`inbound`) or is not one of `ports`: established or closing, not TIME_WAIT.
///
/// # Panics
/// As for [`listeners`].
#[must_use]
pub fn connections(namespace: &Netns, ports: &[u16]) -> (u64, u64) {
    let table = ss(
        namespace,
        &["-tnH", "state", "connected", "exclude", "syn-sent", "exclude", "syn-recv", "exclude", "time-wait"],
    );
    let (mut inbound, mut outbound) = (0, 0);
    for line in table.lines() {
        let local = line.split_whitespace().nth(3).expect("a row has a local address");
        if ports.contains(&port(local)) {
            inbound += 1;
        } else {
            outbound += 1;
        }
    }
    (inbound, outbound)
}

/// Half-open connections to `port` as the server's side has them.
///
/// # Panics
/// As for [`listeners`].
#[must_use]
pub fn half_open(namespace: &Netns, port: u16) -> usize {
    ss(namespace, &["-tnH", "state", "syn-recv", "sport", "=", &port.to_string()]).lines().count()
}

fn listener(line: &str) -> Listener {
    let mut fields = line.split_whitespace().skip(1);
    let mut next = || fields.next().expect("a LISTEN row has five columns");
    let depth = next().parse().expect("Recv-Q is a number");
    let backlog = next().parse().expect("Send-Q is a number");
    Listener { port: port(next()), depth, backlog }
}

fn port(address: &str) -> u16 {
    let (_, port) = address.rsplit_once(':').expect("an address has a port");
    port.parse().expect("a port is a number")
}

fn ss(namespace: &Netns, arguments: &[&str]) -> String {
    let output = Command::new("ss").args(["-N", namespace.name()]).args(arguments).output().expect("ss is installed");
    assert!(output.status.success(), "ss failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("ss prints text")
}
