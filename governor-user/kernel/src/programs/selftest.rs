//! Proof instead of a version check: one loopback connection, made in a private network namespace, has to be counted
//! exactly once by every hook that is attached.

use crate::programs::maps::{self, Maps};
use governor_common::abi::{Direction, ListenerState, Marker, Sojourn};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::thread::UnshareFlags;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a hook may take to show what the kernel did before `accept()` returned: another CPU may still be at it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// Why the programs are not trusted.
#[derive(Debug, Error)]
pub(crate) enum SelfTestError {
    /// The connection could not be made.
    #[error("the self-test could not make a loopback connection")]
    Connection(#[from] io::Error),
    /// The maps cannot be read.
    #[error(transparent)]
    Maps(#[from] maps::Error),
    /// A hook is attached and did not fire, or fired too often.
    #[error("the self-test made one connection, and {0}")]
    Miscounted(String),
}

/// What the hooks that are attached have to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The listener's enqueue.
    pub(crate) enqueue: bool,
    /// The listener's accept, with its wait.
    pub(crate) accept: bool,
    /// Marks on both ends of the connection.
    pub(crate) marks: bool,
}

/// Makes the connection in a thread of its own, which ends with its namespace.
pub(crate) fn run(maps: &Maps, expected: Expected) -> Result<(), SelfTestError> {
    apart(|| test(maps, expected))?
}

/// Runs `work` in a thread with a network namespace of its own.
///
/// # Errors
/// When there is no thread to be had, or it panicked.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let tester = thread::Builder::new().name("selftest".to_owned()).spawn_scoped(scope, || {
            // Without the right to a namespace of its own the thread stays where it is: sockets are distinguished by
            // cookie.
            if enter_private_namespace().is_ok() {
                raise_loopback()?;
            }
            Ok(work())
        })?;
        tester.join().unwrap_or_else(|_| Err(io::Error::other("the self-test itself failed")))
    })
}

fn test(maps: &Maps, expected: Expected) -> Result<(), SelfTestError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let cookie = rustix::net::sockopt::socket_cookie(&listener).map_err(io::Error::from)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;

    let deadline = Instant::now() + PATIENCE;
    loop {
        let verdict = verdict(
            expected,
            (maps.listener(cookie)?, maps.sojourn(cookie)?),
            (maps.marker(&server)?, Direction::Inbound),
            (maps.marker(&client)?, Direction::Outbound),
        );
        match verdict {
            Ok(()) => return Ok(()),
            Err(what) if Instant::now() >= deadline => return Err(SelfTestError::Miscounted(what)),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Compares what the maps show with what was done.
fn verdict(
    expected: Expected,
    (listener, sojourn): (Option<ListenerState>, Option<Sojourn>),
    server: (Option<Marker>, Direction),
    client: (Option<Marker>, Direction),
) -> Result<(), String> {
    let listener = listener.ok_or("its listener was not seen")?;
    if expected.enqueue && listener.enqueued != 1 {
        return Err(format!("its listener counted {} of it", listener.enqueued));
    }
    if expected.accept {
        let waits: u64 = sojourn.map_or(0, |sojourn| sojourn.buckets.iter().sum());
        if (listener.accepted, waits) != (1, 1) {
            return Err(format!("its accept was counted {} times and its wait {waits} times", listener.accepted));
        }
    }
    if expected.marks {
        for (end, (marker, direction)) in [("accepted", server), ("connected", client)] {
            let counted = marker.is_some_and(|mark| mark.counted == 1 && mark.direction == direction.to_raw());
            if !counted {
                return Err(format!("its {end} end was not counted"));
            }
        }
    }
    Ok(())
}

#[expect(deprecated, reason = "what is unsafe about it is another flag: unsharing the descriptor table")]
fn enter_private_namespace() -> rustix::io::Result<()> {
    rustix::thread::unshare(UnshareFlags::NEWNET)
}

/// Brings `lo`, which is always interface 1 of a new namespace, up.
fn raise_loopback() -> io::Result<()> {
    const NLMSG_ERROR: u16 = 2;
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST_ACK: u16 = 1 | 4;
    const LOOPBACK: u32 = 1;
    const IFF_UP: u32 = 1;
    let mut request = Vec::with_capacity(32);
    request.extend(32_u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    // Sequence, port, then an `ifinfomsg`: family and device type, index, flags, mask of flags.
    for field in [1, 0, 0, LOOPBACK, IFF_UP, IFF_UP] {
        request.extend(field.to_ne_bytes());
    }
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let kind = answer.get(4..).and_then(<[u8]>::first_chunk::<2>).map(|bytes| u16::from_ne_bytes(*bytes));
    let error = answer.get(16..).and_then(<[u8]>::first_chunk::<4>).map(|bytes| i32::from_ne_bytes(*bytes));
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(io::Error::other("the kernel did not answer whether loopback is up")),
    }
}

/// Runs `work` in a thread with a private network namespace and loopback, for tests; `None` without the right to one.
#[cfg(test)]
pub(crate) fn in_private_namespace<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            enter_private_namespace().ok()?;
            raise_loopback().unwrap();
            Some(work())
        });
        worker.join().unwrap()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(direction: Direction) -> Option<Marker> {
        Some(Marker { cgroup: 1, direction: direction.to_raw(), counted: 1, ..Marker::default() })
    }

    fn judge(enqueued: u64, server: Option<Marker>) -> Result<(), String> {
        judge_accept(enqueued, 1, server)
    }

    fn judge_accept(enqueued: u64, accepted: u64, server: Option<Marker>) -> Result<(), String> {
        let listener = ListenerState { enqueued, accepted, ..ListenerState::default() };
        let mut sojourn = Sojourn::EMPTY;
        sojourn.buckets[40] = accepted;
        verdict(
            Expected { enqueue: true, accept: true, marks: true },
            (Some(listener), Some(sojourn)),
            (server, Direction::Inbound),
            (marker(Direction::Outbound), Direction::Outbound),
        )
    }

    #[test]
    fn only_exactly_once_passes() {
        assert_eq!(judge(1, marker(Direction::Inbound)), Ok(()));
        assert_eq!(judge(0, marker(Direction::Inbound)), Err("its listener counted 0 of it".to_owned()));
        assert_eq!(judge(2, marker(Direction::Inbound)), Err("its listener counted 2 of it".to_owned()));
        let twice = judge_accept(1, 2, marker(Direction::Inbound)).unwrap_err();
        assert_eq!(twice, "its accept was counted 2 times and its wait 2 times");
        assert_eq!(judge(1, None), Err("its accepted end was not counted".to_owned()));
        assert_eq!(judge(1, marker(Direction::Outbound)), Err("its accepted end was not counted".to_owned()));
    }
}
