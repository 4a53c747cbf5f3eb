//! The work that is measured with and without the governor: connections, messages and plain system calls, by one thread
//! that is both ends. One thread on one core has no context switches to hide a cost behind.

use crate::clock;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Between two looks at the clock.
const BATCH: u32 = 64;
/// Bytes of a message.
const MESSAGE: [u8; 32] = [7; 32];

/// Both ends.
#[derive(Debug)]
pub(crate) struct Load {
    listener: TcpListener,
    port: u16,
    /// Connections made so far.
    made: u32,
    pair: (TcpStream, TcpStream),
}

/// What a stretch of work came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// How often it was done.
    pub(crate) count: u32,
    /// On the wall.
    pub(crate) took: Duration,
    /// Of this thread.
    pub(crate) cpu: Duration,
}

impl Stretch {
    /// How often it was done in a second.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.count) / self.took.as_secs_f64()
    }

    /// CPU time of doing it once, in nanoseconds.
    pub(crate) fn cost_ns(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / f64::from(self.count)
    }
}

impl Load {
    /// Listens in the namespace of the calling thread.
    pub(crate) fn new() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let one = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
        let (other, _) = listener.accept()?;
        one.set_nodelay(true)?;
        Ok(Self { listener, port, made: 0, pair: (one, other) })
    }

    /// Connects, accepts and closes, the client first.
    pub(crate) fn connections(&mut self, length: Duration) -> Result<Stretch> {
        stretch(length, || {
            let client = TcpStream::connect(self.next_target()).context("cannot connect")?;
            let (server, _) = self.listener.accept()?;
            drop(client);
            drop(server);
            Ok(())
        })
    }

    /// So many connections.
    pub(crate) fn connect(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            let client = TcpStream::connect(self.next_target()).context("cannot connect")?;
            let (server, _) = self.listener.accept()?;
            drop(client);
            drop(server);
        }
        Ok(())
    }

    /// Sends a small message over an open connection and reads it at the other end.
    pub(crate) fn messages(&mut self, length: Duration) -> Result<Stretch> {
        let (one, other) = &mut self.pair;
        let mut read = MESSAGE;
        stretch(length, || {
            one.write_all(&MESSAGE)?;
            other.read_exact(&mut read)?;
            Ok(())
        })
    }

    /// Asks for the parent's process id, the cheapest question there is.
    pub(crate) fn system_calls(length: Duration) -> Result<Stretch> {
        stretch(length, || {
            std::hint::black_box(rustix::process::getppid());
            Ok(())
        })
    }

    /// All of 127.0.x.y in turn: one address alone runs out of ports while closed connections linger.
    fn next_target(&mut self) -> SocketAddr {
        self.made = self.made.wrapping_add(1);
        let [.., third, fourth] = self.made.to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, third.max(1), fourth.max(1))), self.port)
    }
}

fn stretch(length: Duration, mut once: impl FnMut() -> Result<()>) -> Result<Stretch> {
    let (begun, cpu) = (Instant::now(), clock::thread_cpu());
    let mut count = 0;
    loop {
        for _ in 0..BATCH {
            once()?;
        }
        count += BATCH;
        let took = begun.elapsed();
        if took >= length {
            return Ok(Stretch { count, took, cpu: clock::thread_cpu() - cpu });
        }
    }
}
