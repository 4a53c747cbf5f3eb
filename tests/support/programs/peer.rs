//! Drives a `test-peer` process: sockets in a network namespace and a cgroup of their own.

use crate::machine::cgroup::Cgroup;
use crate::machine::netns::Netns;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A running peer, killed on drop. Every call returns when the peer has done it.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts one in `namespace`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(namespace: &Netns) -> Self {
        Self::spawn(Command::new(crate::programs::bins::binary("test-peer")).arg(namespace.path()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("test-peer starts");
        let orders = process.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Self { process, orders, answers }
    }

    /// As [`Self::start`], moved into `cgroup` before it makes a socket.
    #[must_use]
    pub fn start_in(namespace: &Netns, cgroup: &Cgroup) -> Self {
        let peer = Self::start(namespace);
        cgroup.add(peer.pid());
        peer
    }

    /// As [`Self::start`], with user and process namespaces of its own: root there, and the first process.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_apart(namespace: &Netns) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]);
        command.args(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command.arg(crate::programs::bins::binary("test-peer")).arg("-");
        Self::spawn(&mut command)
    }

    /// Its process id; of [`Self::start_apart`], that of its parent.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Listens on a free port of `address` with `backlog`; the port.
    pub fn listen(&mut self, address: &str, backlog: u32) -> u16 {
        self.order(&format!("listen {address} {backlog}")).try_into().expect("the peer answers with a port")
    }

    /// As [`Self::listen`], by Multipath TCP.
    ///
    /// # Errors
    /// What the kernel said: usually that it has none.
    pub fn listen_mptcp(&mut self, address: &str, backlog: u32) -> Result<u16, String> {
        self.ask(&format!("listen-mptcp {address} {backlog}"))
            .map(|port| port.try_into().expect("the peer answers with a port"))
    }

    /// As [`Self::listen`], with connections taken into the queue when their first data comes.
    pub fn listen_deferred(&mut self, address: &str, backlog: u32) -> u16 {
        let port = self.order(&format!("listen-deferred {address} {backlog}"));
        port.try_into().expect("the peer answers with a port")
    }

    /// As [`Self::listen`], with Fast Open for `most` connections at a time.
    pub fn listen_fast(&mut self, address: &str, backlog: u32, most: u32) -> u16 {
        let port = self.order(&format!("listen-fast {address} {backlog} {most}"));
        port.try_into().expect("the peer answers with a port")
    }

    /// Opens `count` connections with one byte in the SYN each.
    pub fn connect_fast(&mut self, address: &str, port: u16, count: u32) {
        assert_eq!(self.order(&format!("connect-fast {address} {port} {count}")), count);
    }

    /// Sends one byte on each of `count` connections from the `first` on, in the order they were made.
    pub fn say(&mut self, first: u32, count: u32) {
        assert_eq!(self.order(&format!("say {first} {count}")), count);
    }

    /// Sends `count` SYNs to `port` of 127.0.0.1 from clients in 192.0.2.0/24 that never answer.
    pub fn spoof(&mut self, port: u16, count: u32) {
        assert_eq!(self.order(&format!("spoof {port} {count}")), count);
    }

    /// Makes `count` entries in the namespace's connection-tracking table; how many it holds then.
    ///
    /// # Errors
    /// What the kernel said: usually that it tracks no connections.
    pub fn track(&mut self, count: u32) -> Result<u32, String> {
        self.ask(&format!("track {count}"))
    }

    /// Has the listener on `port` hear SYNs only, until [`Self::hear_all`].
    pub fn hear_syns_only(&mut self, port: u16) {
        self.order(&format!("hear syns {port}"));
    }

    /// Has the listener on `port` hear everything again.
    pub fn hear_all(&mut self, port: u16) {
        self.order(&format!("hear all {port}"));
    }

    /// As [`Self::hear_syns_only`], for one member of the groups: 0 is the oldest.
    pub fn hear_syns_only_of_member(&mut self, place: u32) {
        self.order(&format!("hear-member syns {place}"));
    }

    /// As [`Self::hear_all`], for one member of the groups: 0 is the oldest.
    pub fn hear_all_of_member(&mut self, place: u32) {
        self.order(&format!("hear-member all {place}"));
    }

    /// Calls `listen()` again.
    pub fn relisten(&mut self, port: u16, backlog: u32) {
        self.order(&format!("relisten {port} {backlog}"));
    }

    /// Listens with `count` sockets of one SO_REUSEPORT group; their port. They accept nothing.
    pub fn listen_group(&mut self, address: &str, backlog: u32, count: u32) -> u16 {
        self.order(&format!("group {address} {backlog} {count}")).try_into().expect("the peer answers with a port")
    }

    /// Closes the oldest member of the groups.
    pub fn close_member(&mut self) {
        self.order("close member");
    }

    /// Accepts `count` connections on the oldest member of the groups.
    pub fn accept_of_member(&mut self, count: u32) {
        assert_eq!(self.order(&format!("accept-member {count}")), count);
    }

    /// As [`Self::connect`], by Multipath TCP.
    pub fn connect_mptcp(&mut self, address: &str, port: u16, count: u32) {
        assert_eq!(self.order(&format!("connect-mptcp {address} {port} {count}")), count);
    }

    /// Opens `count` connections, each waiting for the handshake; how many worked.
    pub fn connect(&mut self, address: &str, port: u16, count: u32) -> u32 {
        self.order(&format!("connect {address} {port} {count}"))
    }

    /// Begins `count` connections and waits for none; the kernel goes on with them.
    pub fn begin(&mut self, address: &str, port: u16, count: u32) {
        let begun = self.order(&format!("begin {address} {port} {count}"));
        assert_eq!(begun, count);
    }

    /// Accepts `count` connections on `port`.
    pub fn accept(&mut self, port: u16, count: u32) {
        let accepted = self.order(&format!("accept {port} {count}"));
        assert_eq!(accepted, count);
    }

    /// Begins to accept `count` connections (a multiple of 5) by `style`: `asleep`, `many`, `events`, `ring` (io_uring),
    /// `workers`, or `stubborn`, which tries again when there is no descriptor.
    pub fn begin_accepting(&mut self, style: &str, port: u16, count: u32) {
        let begun = self.order(&format!("accept-by {style} {port} {count}"));
        assert_eq!(begun, count);
    }

    /// Waits until everything begun is accepted.
    pub fn finish_accepting(&mut self) {
        self.order("accepted");
    }

    /// Tries `count` times to accept on `port` without a descriptor to spare; how often that was the refusal.
    pub fn accept_without_descriptors(&mut self, port: u16, count: u32) -> u32 {
        self.order(&format!("starve {port} {count}"))
    }

    /// Begins to accept on `port` and to close what it accepted, at most so many a second; 0: as fast as it can.
    pub fn serve(&mut self, port: u16, rate: u32) {
        self.order(&format!("serve {port} {rate}"));
    }

    /// As [`Self::serve`], on each socket of the groups.
    pub fn serve_group(&mut self, rate: u32) {
        self.order(&format!("serve-group {rate}"));
    }

    /// Opens `count` connections at once and waits until the server has closed each, 4 s at most; how many it served.
    pub fn burst(&mut self, address: &str, port: u16, count: u32) -> u32 {
        self.order(&format!("burst {address} {port} {count}"))
    }

    /// Opens so many connections a second for so many seconds, and gives them up then; how many.
    pub fn load(&mut self, address: &str, port: u16, per_second: u32, seconds: u32) -> u32 {
        self.order(&format!("load {address} {port} {per_second} {seconds}"))
    }

    /// Resets every connection, the listeners stay.
    pub fn reset_connections(&mut self) {
        self.order("reset connections");
    }

    /// Closes every connection, the listeners stay.
    pub fn close_connections(&mut self) {
        self.order("close connections");
    }

    /// Closes every socket.
    pub fn close_all(&mut self) {
        self.order("close all");
    }

    fn order(&mut self, order: &str) -> u32 {
        self.ask(order).unwrap_or_else(|answer| panic!("`{order}` failed: {answer}"))
    }

    fn ask(&mut self, order: &str) -> Result<u32, String> {
        writeln!(self.orders, "{order}").expect("the peer takes orders");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the peer answers");
        answer.trim().parse().map_err(|_| answer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
