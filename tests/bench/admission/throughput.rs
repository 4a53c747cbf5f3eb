//! Pairs of acquire and release a second, 50 connections with 16 requests in flight each. The baseline is Redis over its
//! Unix socket with a slot script, one EVALSHA for each acquire and one for each release, in the same depth.

use crate::Scale;
use crate::daemon;
use crate::float;
use crate::pairs::{Arm, Series, order};
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use crate::server::{Server, listens};
use crate::talk;
use anyhow::{Context, Result, ensure};
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::cores;

const CONNECTIONS: u8 = 50;
const DEPTH: usize = 16;

/// Slots of one key with an expiry each, by the store's clock: what a limiter over Redis does that survives the death of
/// who holds them.
const TAKE: &str = "local time = redis.call('TIME') \
                    local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) \
                    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) \
                    if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end \
                    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[3]) return 1";
const GIVE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// One connection: what was read and not yet looked at, and what goes out when all is answered.
struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    have: usize,
    dialect: Dialect,
}

enum Dialect {
    Governor { release: Vec<u8>, acquires: Vec<u8>, leases: Vec<u64> },
    Redis { acquires: Vec<u8>, releases: Vec<u8>, waiting: usize, holds: bool },
}

impl Connection {
    fn new(stream: UnixStream, dialect: Dialect) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024], have: 0, dialect })
    }

    /// Gives back what is held and asks for as much.
    fn ask(&mut self) -> Result<()> {
        let bytes = match &mut self.dialect {
            Dialect::Governor { release, acquires, leases } => {
                // The ids are the last of the frame.
                let ids = release.len() - 8 * DEPTH;
                let places = release[ids..].as_chunks_mut::<8>().0;
                places.iter_mut().zip(&*leases).for_each(|(place, lease)| *place = lease.to_le_bytes());
                let bytes = if leases.is_empty() { acquires.clone() } else { [&release[..], acquires].concat() };
                leases.clear();
                bytes
            }
            Dialect::Redis { acquires, releases, waiting, holds } => {
                let bytes = if *holds { [&releases[..], acquires].concat() } else { acquires.clone() };
                *waiting = if *holds { 2 * DEPTH } else { DEPTH };
                *holds = true;
                bytes
            }
        };
        // Some kilobytes: a socket with nothing on the way takes them whole.
        self.stream.write_all(&bytes).context("a socket does not take a batch")
    }

    /// Takes what has come; true when all that was asked is answered.
    fn hear(&mut self) -> Result<bool> {
        match self.stream.read(&mut self.buffer[self.have..]) {
            Ok(0) => anyhow::bail!("the server hung up"),
            Ok(count) => self.have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let bytes = &self.buffer[..self.have];
        let (taken, done) = match &mut self.dialect {
            Dialect::Governor { leases, .. } => (talk::grants(bytes, leases)?, leases.len() == DEPTH),
            Dialect::Redis { waiting, .. } => {
                let (answers, _) = bytes.as_chunks::<4>();
                ensure!(answers.iter().all(|answer| answer == b":1\r\n"), "a slot was refused");
                *waiting -= answers.len();
                (answers.len() * 4, *waiting == 0)
            }
        };
        self.buffer.copy_within(taken..self.have, 0);
        self.have -= taken;
        Ok(done)
    }
}

/// All connections to one server.
struct Swarm {
    connections: Vec<Connection>,
    epoll: rustix::fd::OwnedFd,
}

impl Swarm {
    fn new(connect: impl Fn(u8) -> Result<Connection>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let connections = (0..CONNECTIONS).map(connect).collect::<Result<Vec<_>>>()?;
        for (index, connection) in (0..).zip(&connections) {
            epoll::add(&epoll, &connection.stream, epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
        }
        Ok(Self { connections, epoll })
    }

    /// Pairs a second over a window. What is on the way at its end is waited for and not counted.
    fn window(&mut self, length: Duration) -> Result<f64> {
        let begun = Instant::now();
        self.connections.iter_mut().try_for_each(Connection::ask)?;
        let (mut pairs, mut open, mut took) = (0, self.connections.len(), length);
        let mut events = Vec::with_capacity(CONNECTIONS.into());
        while open > 0 {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
            // A smoke run on a busy machine may need longer for one.
            let over = begun.elapsed() >= length && pairs > 0;
            if !over {
                took = begun.elapsed();
            }
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                let connection = self.connections.get_mut(index).context("an event of no connection")?;
                if connection.hear()? {
                    if over {
                        open -= 1;
                    } else {
                        pairs += DEPTH as u64;
                        connection.ask()?;
                    }
                }
            }
        }
        Ok(float(pairs)? / took.as_secs_f64())
    }
}

/// Measures.
pub(crate) fn measure(scale: &Scale) -> Result<Row> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("redis");
    let mut redis = Command::new("redis-server");
    redis.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"]).arg(folder.path());
    let _redis = Server::start("redis-server", redis.arg("--unixsocket").arg(&path), || listens(&path))?;
    let daemon = daemon()?;
    let series = thread::scope(|scope| {
        let work = scope.spawn(|| alternate(scale, &daemon.socket(), &path));
        work.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the client panicked")))
    })?;
    Ok(Row {
        what: "acquire + release, 50 connections × depth 16, by Redis EVALSHA".to_owned(),
        unit: "pairs/s".to_owned(),
        baseline: Some(series.of(Arm::Detached)),
        value: series.of(Arm::Attached),
        ratio: Some(series.ratio(Arm::Attached)),
        target: Some(Target { of: Subject::Ratio, bound: Bound::AtLeast, limit: 5.0, aim: Some(10.0) }),
    })
}

fn alternate(scale: &Scale, daemon: &Path, redis: &Path) -> Result<Series> {
    cores::beside_clients()?;
    let mut daemon = Swarm::new(|key| {
        let (release, acquires) = (talk::release(&[0; DEPTH])?, talk::acquire(key)?.repeat(DEPTH));
        Connection::new(talk::session(daemon)?, Dialect::Governor { release, acquires, leases: Vec::new() })
    })?;
    let (take, give) = (load(redis, TAKE)?, load(redis, GIVE)?);
    let mut redis = Swarm::new(|key| {
        let slots = |script: &str, arguments: &[&str]| {
            (0..DEPTH).flat_map(|slot| evalsha(script, key, arguments, slot)).collect::<Vec<u8>>()
        };
        let (acquires, releases) = (slots(&take, &["100", "3600000"]), slots(&give, &[]));
        let dialect = Dialect::Redis { acquires, releases, waiting: 0, holds: false };
        Connection::new(UnixStream::connect(redis)?, dialect)
    })?;
    let mut series = Series::default();
    // Warms both, and is thrown away.
    daemon.window(scale.window)?;
    redis.window(scale.window)?;
    for (done, arm) in order(scale.pairs, [Arm::Attached, Arm::Detached]).enumerate() {
        progress(format_args!("acquire and release, window {} of {}", done + 1, 2 * scale.pairs));
        let swarm = if arm == Arm::Attached { &mut daemon } else { &mut redis };
        series.push(arm, swarm.window(scale.window)?);
    }
    Ok(series)
}

/// Gives Redis a script; its name for it.
fn load(redis: &Path, script: &str) -> Result<String> {
    let mut stream = UnixStream::connect(redis)?;
    stream.write_all(&command(&["SCRIPT", "LOAD", script]))?;
    let mut answer = [0; 128];
    let count = stream.read(&mut answer)?;
    let answer = std::str::from_utf8(&answer[..count])?;
    answer.lines().nth(1).map(str::to_owned).with_context(|| format!("redis said {answer:?}"))
}

fn evalsha(script: &str, key: u8, arguments: &[&str], slot: usize) -> Vec<u8> {
    let (key, slot) = (format!("slots:{key}"), format!("{key}-{slot}"));
    command(&[&["EVALSHA", script, "1", &key], arguments, &[&slot]].concat())
}

fn command(words: &[&str]) -> Vec<u8> {
    let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    let count = words.matches("\r\n").count() / 2;
    format!("*{count}\r\n{words}").into_bytes()
}
