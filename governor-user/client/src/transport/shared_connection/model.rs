//! The hand-off between threads that ask and the session's task, in many interleavings: no command stays in the queue while
//! the task waits. Runs under `--cfg shuttle`, by `cargo xtask test model`; a run in which every thread waits is a failure.

use super::{After, SharedConnection};
use crate::config::Config;
use crate::lease::queue::{Command, Next, Queue};
use crate::lease::request::AcquireRequest;
use crate::protocol::exchange::{Exchange, Publisher};
use crate::transport::connection::Connection;
use governor_common::wire::reply::Overload;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::Instant;

/// Threads that ask, and what each asks.
const THREADS: u64 = 3;
const COMMANDS: u64 = 2;

fn shared() -> (Queue, Arc<SharedConnection>) {
    let publisher = Publisher {
        overload: watch::channel(Overload::default()).0,
        connected: watch::channel(false).0,
        tiers: broadcast::Sender::new(1),
    };
    let queue = Queue::new();
    let exchange = Exchange::new(&Config::new("/nowhere"), queue.downgrade(), publisher, Instant::now());
    let connection = Connection::new(exchange, watch::channel(None).1);
    (queue.clone(), Arc::new(SharedConnection::new(&queue, connection)))
}

fn acquire(ticket: u64) -> Command {
    let ask = Box::new(AcquireRequest::new("chat"));
    Command::Acquire { ticket, ask, reply: oneshot::channel().0 }
}

/// What the session's task does: drains the queue, then reads or waits until it is notified, and waits on after a read only if
/// that left nothing to do.
fn task(shared: &SharedConnection) {
    loop {
        let now = Instant::now();
        let mut connection = shared.connection().expect("no thread of the model panics with it");
        shared.take_up(&mut connection, now);
        // Its timers fire earlier than anything that the commands ask for.
        connection.alarm = Some(now);
        drop(connection);
        match shared.rest(false) {
            Next::Busy => {}
            Next::Closed => return,
            Next::Rest => wait(shared),
        }
    }
}

fn wait(shared: &SharedConnection) {
    // The socket is readable now and then.
    while thread_rng().gen_bool(0.5) {
        if shared.listen().expect("there is no socket that could fail").0 == After::Turn {
            return;
        }
    }
    shared.notify().wait();
}

fn every_command_is_taken_up() {
    let (queue, connection) = shared();
    let session = thread::spawn({
        let connection = connection.clone();
        move || task(&connection)
    });
    let callers: Vec<_> = (0..THREADS)
        .map(|caller| {
            let connection = connection.clone();
            thread::spawn(move || {
                for command in 0..COMMANDS {
                    connection.ask(acquire(caller * COMMANDS + command));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("it asks, and that is all");
    }
    while !connection.notify().is_idle() {
        thread::yield_now();
    }
    let waiting = u64::from(queue.counters().waiting.load(Ordering::Relaxed));
    assert_eq!(waiting, THREADS * COMMANDS, "the task waits, and some commands are still in the queue");
    // Closes it, which ends the task.
    drop(queue);
    session.join().expect("it drains the queue, and that is all");
}

#[test]
fn no_command_is_left_while_every_thread_waits() {
    shuttle::check_random(every_command_is_taken_up, 5_000);
    shuttle::check_pct(every_command_is_taken_up, 5_000, 3);
}
