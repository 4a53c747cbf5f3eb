//! Makes the kernel refuse a connection for a full accept queue, at either stage, so that the hooks which count refusals
//! can be held against the kernel's own count before they are trusted. All in the calling thread's network namespace,
//! which has to be a private one.
//!
//! On a busy machine a packet to loopback may be worked off a little after the call that sent it, so each step is waited for.

use crate::tables::deferred;
use crate::tables::netstat::{self, named};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt::socket_cookie};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a packet to be worked off; well below the second after which a client tries again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Between two looks.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// A listener that refused, with its clients; the refusals end when it is dropped.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The listener's cookie.
    pub(crate) cookie: u64,
    /// How often the namespace had refused before.
    before: u64,
    _listener: TcpListener,
    _clients: Vec<OwnedFd>,
}

impl Refused {
    /// How often the kernel says that it refused, so far: each retry of a client is one more.
    pub(crate) fn times(&self) -> io::Result<u64> {
        Ok(overflows()?.saturating_sub(self.before))
    }
}

/// Has a SYN refused.
pub(crate) fn refuse_syn() -> io::Result<Refused> {
    let (listener, address) = listen(0)?;
    let before = overflows()?;
    let mut clients: Vec<OwnedFd> = vec![TcpStream::connect(address)?.into()];
    // A listener with something in its queue, here one with a full one.
    let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&patience))?;
    clients.push(begin(address)?);
    refused(listener, clients, before)
}

/// Has the last packet of a handshake refused: of three clients that were let in while the queue had room, and that the
/// listener takes into its queue when they say something, the third speaks when the queue is full.
pub(crate) fn refuse_ack() -> io::Result<Refused> {
    let (listener, address) = listen(1)?;
    deferred::defer(&listener)?;
    let before = overflows()?;
    let mut late = TcpStream::connect(address)?;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut prompt = TcpStream::connect(address)?;
        prompt.write_all(b"x")?;
        clients.push(prompt.into());
    }
    late.write_all(b"x")?;
    clients.push(late.into());
    refused(listener, clients, before)
}

fn listen(backlog: i32) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&listener, backlog)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Begins a connection and does not wait for it.
fn begin(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

fn refused(listener: TcpListener, clients: Vec<OwnedFd>, before: u64) -> io::Result<Refused> {
    let cookie = socket_cookie(&listener)?;
    let refused = Refused { cookie, before, _listener: listener, _clients: clients };
    let deadline = Instant::now() + PATIENCE;
    while refused.times()? == 0 && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    Ok(refused)
}

/// `ListenOverflows` of the namespace.
fn overflows() -> io::Result<u64> {
    let counters = named(netstat::read_here()?.values);
    counters.listen_overflows.ok_or_else(|| io::Error::other("this kernel does not count overflows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::selftest::in_private_namespace;

    #[test]
    fn the_kernel_refuses_once_at_either_stage() {
        let ran = in_private_namespace(|| {
            assert_eq!(refuse_syn().unwrap().times().unwrap(), 1);
            assert_eq!(refuse_ack().unwrap().times().unwrap(), 1);
        });
        if ran.is_none() {
            println!("SKIP: no right to a private network namespace");
        }
    }
}
