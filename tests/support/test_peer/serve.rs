//! An acceptor of a given pace and clients that come all at once or steadily, for `test-peer`.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, connect, recv, sockopt},
};
use std::{
    error::Error,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Clients of a burst give up after so long: some retries, and no more.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often an acceptor without clients looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Acceptors that run until they are dropped.
#[derive(Default)]
pub(crate) struct Servers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Servers {
    /// Accepts on `listener` and closes what it accepted, at most `rate` a second; 0: as fast as it can.
    pub(crate) fn serve(&mut self, listener: TcpListener, rate: u32) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || {
            let pause = Duration::from_secs(1).checked_div(rate);
            let wait = Timespec::try_from(LOOK).map_err(io::Error::other)?;
            while !stop.load(Ordering::Relaxed) {
                if poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&wait))? == 0 {
                    continue;
                }
                drop(listener.accept()?);
                if let Some(pause) = pause {
                    thread::sleep(pause);
                }
            }
            Ok(())
        }));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // An acceptor that failed shows in what its clients saw.
            drop(thread.join());
        }
    }
}

/// Begins `count` connections at once and waits until the server has closed each; how many it served before they gave up.
pub(crate) fn burst(target: SocketAddr, count: usize) -> Outcome<usize> {
    let clients: Vec<OwnedFd> = (0..count).map(|_| begin(target)).collect::<Outcome<_>>()?;
    let end = Instant::now() + PATIENCE;
    let mut served = 0;
    for client in &clients {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
        let ready = poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&left))? > 0;
        let mut byte = [0_u8; 1];
        served += usize::from(ready && recv(client, &mut byte, RecvFlags::DONTWAIT).is_ok());
    }
    // Who gave up does not come back by a retry after this.
    for client in &clients {
        sockopt::set_socket_linger(client, Some(Duration::ZERO))?;
    }
    Ok(served)
}

/// Begins `per_second` connections a second for so long, evenly, and gives each up after that.
pub(crate) fn load(target: SocketAddr, per_second: u32, time: Duration) -> Outcome<usize> {
    let pause = Duration::from_secs(1).checked_div(per_second).ok_or("a load has a rate")?;
    let (begun, mut clients) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        clients.push(begin(target)?);
        let due = pause * u32::try_from(clients.len())?;
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    for client in &clients {
        sockopt::set_socket_linger(client, Some(Duration::ZERO))?;
    }
    Ok(clients.len())
}

fn begin(target: SocketAddr) -> Outcome<OwnedFd> {
    let client = crate::socket(target.ip())?;
    rustix::io::ioctl_fionbio(&client, true)?;
    match connect(&client, &target) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(client),
        Err(error) => Err(error.into()),
    }
}
