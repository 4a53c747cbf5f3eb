//! Requests in open loop: each leaves when its time has come, whatever became of those before, and its latency counts from
//! that time. HTTP/1.1 over kept connections, as many as are needed; one thread.

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{Timespec, epoll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Keys in turn.
const KEYS: usize = 50;

/// More than are ever needed; who needs more is not keeping up.
const CONNECTIONS: usize = 512;

/// After the last request was sent, its answers may take this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of one gateway.
pub(crate) struct Load {
    target: SocketAddr,
    requests: Vec<Vec<u8>>,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    waiting: VecDeque<Instant>,
    epoll: rustix::fd::OwnedFd,
    sent: usize,
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// When the request on it was due.
    due: Option<Instant>,
}

impl Load {
    pub(crate) fn new(target: SocketAddr) -> Result<Self> {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"a short question"}]}"#;
        let request = |key| {
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer sk-{key:04}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        Ok(Self {
            target,
            requests: (0..KEYS).map(|key| request(key).into_bytes()).collect(),
            connections: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sent: 0,
        })
    }

    /// Sends for so long, a request every `gap`; the latencies in microseconds.
    pub(crate) fn window(&mut self, length: Duration, gap: Duration) -> Result<Vec<f64>> {
        let begun = Instant::now();
        let (mut due, end) = (begun, begun + length);
        let mut latencies = Vec::new();
        let mut events = Vec::with_capacity(CONNECTIONS);
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                self.waiting.push_back(due);
                due += gap;
            }
            while let Some(at) = self.waiting.front().copied() {
                if !self.send(at)? {
                    break;
                }
                self.waiting.pop_front();
            }
            let open = self.connections.len() - self.idle.len();
            if due >= end && open == 0 && self.waiting.is_empty() {
                return Ok(latencies);
            }
            ensure!(now < end + PATIENCE, "{open} requests have no answer");
            let until = if due < end { due } else { now + PATIENCE };
            events.clear();
            let pause = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&pause))?;
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                let connection = self.connections.get_mut(index).context("an event of no connection")?;
                if connection.hear()? {
                    let due = connection.due.take().context("an answer to nothing")?;
                    latencies.push(due.elapsed().as_secs_f64() * 1e6);
                    self.idle.push(index);
                }
            }
        }
    }

    /// False if no connection is to be had.
    fn send(&mut self, due: Instant) -> Result<bool> {
        let index = match self.idle.pop() {
            Some(index) => index,
            None if self.connections.len() == CONNECTIONS => return Ok(false),
            None => self.open()?,
        };
        let request = &self.requests[self.sent % KEYS];
        self.sent += 1;
        let connection = &mut self.connections[index];
        connection.due = Some(due);
        connection.stream.write_all(request).context("a gateway does not take a request")?;
        Ok(true)
    }

    fn open(&mut self) -> Result<usize> {
        let stream = TcpStream::connect(self.target)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let index = self.connections.len();
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        self.connections.push(Connection { stream, buffer: Vec::new(), due: None });
        Ok(index)
    }
}

impl Connection {
    /// Takes what has come; true when the answer is whole.
    fn hear(&mut self) -> Result<bool> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => bail!("a gateway hung up"),
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
        let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 200"), "a gateway answered {head:?}");
        let body = &self.buffer[end + 4..];
        let whole = match head.split("\r\n").find_map(|line| line.strip_prefix("content-length:")) {
            Some(length) => body.len() >= length.trim().parse()?,
            None => body.ends_with(b"0\r\n\r\n"),
        };
        if whole {
            self.buffer.clear();
        }
        Ok(whole)
    }
}
