//! The ways in which servers accept, for `test-peer`: asleep in accept, many asleep, an event loop, io_uring, processes
//! that inherited the listener (pre-forked workers and socket activation alike).

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Signal, set_parent_process_death_signal},
};
use std::{
    error::Error,
    io::{self, BufRead, BufReader, Write},
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

type Outcome<T> = Result<T, Box<dyn Error>>;
type Accepting = JoinHandle<io::Result<Vec<OwnedFd>>>;

/// Accepting under way.
#[derive(Default)]
pub(crate) struct Styles {
    threads: Vec<Accepting>,
    workers: Vec<Worker>,
}

impl Styles {
    /// Begins to accept `count` connections by `style`; everything else goes on meanwhile.
    pub(crate) fn begin(&mut self, style: &str, listener: &TcpListener, count: usize) -> Outcome<usize> {
        const MANY: usize = 5;
        match style {
            "asleep" => self.threads.push(asleep(listener.try_clone()?, count)),
            "many" => {
                for _ in 0..MANY {
                    self.threads.push(asleep(listener.try_clone()?, count / MANY));
                }
            }
            "stubborn" => self.threads.push(stubborn(listener.try_clone()?, count)),
            "events" => self.threads.push(event_loop(listener.try_clone()?, count)),
            "ring" => {
                let listener = listener.try_clone()?;
                self.threads.push(thread::spawn(move || support::ring::accept(&listener, count)));
            }
            "workers" => {
                for _ in 0..MANY {
                    self.workers.push(Worker::start(listener, count / MANY)?);
                }
            }
            _ => return Err("unknown style".into()),
        }
        Ok(count)
    }

    /// Waits until all is accepted; the connections that this process holds.
    pub(crate) fn finish(&mut self) -> Outcome<Vec<OwnedFd>> {
        let mut connections = Vec::new();
        for thread in self.threads.drain(..) {
            connections.extend(thread.join().map_err(|_| "an accepting thread panicked")??);
        }
        for worker in &mut self.workers {
            worker.wait()?;
        }
        Ok(connections)
    }
}

fn asleep(listener: TcpListener, count: usize) -> Accepting {
    thread::spawn(move || (0..count).map(|_| listener.accept().map(|(stream, _)| stream.into())).collect())
}

/// Tries again at once when there is no descriptor for a connection, as a server by level-triggered readiness does.
fn stubborn(listener: TcpListener, count: usize) -> Accepting {
    const PAUSE: Duration = Duration::from_micros(200);
    thread::spawn(move || {
        let mut connections: Vec<OwnedFd> = Vec::new();
        while connections.len() < count {
            match listener.accept() {
                Ok((stream, _)) => connections.push(stream.into()),
                // Leaves the machine some time.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(connections)
    })
}

/// Waits for readiness and accepts until the kernel says that there is no more, as every event loop does.
fn event_loop(listener: TcpListener, count: usize) -> Accepting {
    thread::spawn(move || {
        listener.set_nonblocking(true)?;
        let mut connections: Vec<OwnedFd> = Vec::new();
        while connections.len() < count {
            poll(&mut [PollFd::new(&listener, PollFlags::IN)], None)?;
            loop {
                match listener.accept() {
                    Ok((stream, _)) => connections.push(stream.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        listener.set_nonblocking(false)?;
        Ok(connections)
    })
}

/// A process with the listener as its descriptor 0; killed on drop, and by the kernel when its parent is.
struct Worker {
    process: Child,
    done: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(listener: &TcpListener, count: usize) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--worker", &count.to_string()])
            .stdin(Stdio::from(OwnedFd::from(listener.try_clone()?)))
            .stdout(Stdio::piped())
            .spawn()?;
        let done = BufReader::new(process.stdout.take().ok_or("stdout is piped")?);
        Ok(Self { process, done })
    }

    fn wait(&mut self) -> Outcome<()> {
        let mut line = String::new();
        self.done.read_line(&mut line)?;
        if line == "done\n" { Ok(()) } else { Err("a worker ended early".into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The life of a worker: accepts, says so, and holds what it accepted until it is killed.
pub(crate) fn work(count: usize) -> Outcome<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        held.push(listener.accept()?);
    }
    writeln!(io::stdout(), "done")?;
    loop {
        thread::park();
    }
}
