//! One acquire answered by a grant, alone on its way; the release of the one before travels with it. The baseline is the
//! least that could answer: an echo on a current-thread tokio runtime, equal frames both ways, the same client.

use crate::Scale;
use crate::daemon;
use crate::float;
use crate::pairs::{Arm, Series, order};
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use crate::server::{Server, listens};
use crate::talk;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use support::cores;

/// One end of a conversation.
struct Asker {
    stream: UnixStream,
    /// Release of one lease, then an acquire.
    frames: Vec<u8>,
    answer: Vec<u8>,
    leases: Vec<u64>,
}

/// Where the lease stands in `Asker::frames`: after header and count.
const LEASE: std::ops::Range<usize> = 16..24;

impl Asker {
    fn new(stream: UnixStream) -> Result<Self> {
        let frames = [talk::release(&[0])?, talk::acquire(7)?].concat();
        Ok(Self { stream, frames, answer: vec![0; 4096], leases: Vec::new() })
    }

    fn ask(&mut self) -> Result<()> {
        self.stream.write_all(&self.frames)?;
        self.leases.clear();
        let mut have = 0;
        while self.leases.is_empty() {
            let count = self.stream.read(&mut self.answer[have..])?;
            ensure!(count > 0, "the server hung up");
            have += count;
            let taken = talk::grants(&self.answer[..have], &mut self.leases)?;
            self.answer.copy_within(taken..have, 0);
            have -= taken;
        }
        self.frames[LEASE].copy_from_slice(&self.leases[0].to_le_bytes());
        Ok(())
    }

    /// Microseconds of one, over a window.
    fn window(&mut self, length: Duration) -> Result<f64> {
        let (begun, mut done) = (Instant::now(), 0);
        while begun.elapsed() < length {
            for _ in 0..16 {
                self.ask()?;
            }
            done += 16;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e6 / float(done)?)
    }
}

/// Measures.
pub(crate) fn measure(scale: &Scale) -> Result<Row> {
    let daemon = daemon()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("echo");
    let _echo = Server::own("echo", &[path.to_str().context("a plain name")?], || listens(&path))?;
    let series = thread::scope(|scope| {
        let work = scope.spawn(|| alternate(scale, &daemon.socket(), &path));
        work.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the client panicked")))
    })?;
    Ok(Row {
        what: "acquire to grant over the socket, by an echo".to_owned(),
        unit: "µs".to_owned(),
        baseline: Some(series.of(Arm::Detached)),
        value: series.of(Arm::Attached),
        ratio: Some(series.ratio(Arm::Attached)),
        target: Some(Target { of: Subject::Ratio, bound: Bound::AtMost, limit: 1.3, aim: Some(1.1) }),
    })
}

fn alternate(scale: &Scale, daemon: &Path, echo: &Path) -> Result<Series> {
    cores::beside_clients()?;
    let (mut daemon, mut echo) = (Asker::new(talk::session(daemon)?)?, Asker::new(UnixStream::connect(echo)?)?);
    let mut series = Series::default();
    // Warms both, and is thrown away.
    daemon.window(scale.window)?;
    echo.window(scale.window)?;
    for (done, arm) in order(scale.pairs, [Arm::Attached, Arm::Detached]).enumerate() {
        progress(format_args!("round trips, window {} of {}", done + 1, 2 * scale.pairs));
        let asker = if arm == Arm::Attached { &mut daemon } else { &mut echo };
        series.push(arm, asker.window(scale.window)?);
    }
    Ok(series)
}
