//! Clients that come all at once, and how long each waited to be connected.

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};
use support::machine::netns::Netns;

/// Clients give up after so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// Milliseconds from `connect()` to an established connection, of every client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    /// Adds those of another burst.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// So large a part of the clients waited at most so long; not a number for none.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = sorted.iter().zip(1_u32..).find(|(_, rank)| {
            let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
            f64::from(*rank) >= part * f64::from(count)
        });
        rank.map_or(f64::NAN, |(value, _)| *value)
    }
}

/// One client.
struct Client {
    socket: OwnedFd,
    begun: Instant,
    took: Option<Duration>,
}

/// Begins `count` connections at once, from within the namespace, and watches each until it is there.
pub(crate) fn burst(namespace: &Netns, target: SocketAddr, count: u32) -> Result<Latencies> {
    let door = File::open(namespace.path()).context("the namespace is gone")?;
    // A thread enters a namespace for good, so one is made for it.
    let clients = thread::spawn(move || -> Result<Latencies> {
        move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
        let clients = (0..count).map(|_| begin(target)).collect::<Result<Vec<Client>>>()?;
        watch(clients)
    });
    clients.join().map_err(|_| anyhow!("the clients panicked"))?
}

fn begin(target: SocketAddr) -> Result<Client> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    let begun = Instant::now();
    match connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Client { socket, begun, took: None }),
        Err(error) => Err(error.into()),
    }
}

fn watch(mut clients: Vec<Client>) -> Result<Latencies> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let pending: Vec<usize> = (0..clients.len()).filter(|index| clients[*index].took.is_none()).collect();
        if pending.is_empty() || left.is_zero() {
            break;
        }
        let mut polled: Vec<PollFd<'_>> =
            pending.iter().map(|index| PollFd::new(&clients[*index].socket, PollFlags::OUT)).collect();
        poll(&mut polled, Some(&Timespec::try_from(left)?))?;
        let now = Instant::now();
        let ready = pending.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        let ready: Vec<usize> = ready.map(|(index, _)| *index).collect();
        for index in ready {
            clients[index].took = Some(now - clients[index].begun);
        }
    }
    for client in &clients {
        // Who gave up does not come back by a retry in the next burst.
        sockopt::set_socket_linger(&client.socket, Some(Duration::ZERO))?;
    }
    let waits = clients.iter().map(|client| client.took.unwrap_or(PATIENCE).as_secs_f64() * 1e3);
    Ok(Latencies(waits.collect()))
}
