//! Who takes up what is queued when the line is taken.

use super::*;
use crate::config::Config;
use crate::protocol::exchange::{Exchange, Said};
use governor_common::wire::reply::Overload;
use governor_common::wire::socket::Socket;
use std::os::unix::net::UnixStream;
use tokio::sync::{broadcast, watch};

fn queue() -> Queue {
    let said = Said {
        overload: watch::channel(Overload::default()).0,
        connected: watch::channel(false).0,
        tiers: broadcast::Sender::new(1),
    };
    let exchange = |back| Exchange::new(&Config::new("/nowhere"), back, said, Instant::now());
    Queue::new(|back| Talk::new(exchange(back), watch::channel(None).1))
}

fn question() -> Command {
    let ask = Box::new(AcquireRequest::new("chat"));
    Command::Acquire { ticket: 1, ask, reply: oneshot::channel().0 }
}

#[tokio::test]
async fn what_is_asked_while_the_task_reads_is_taken_up_after_it() {
    let queue = queue();
    let line = queue.line();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let socket = Arc::new(Socket::new(ours).unwrap());
    let now = Instant::now();
    let mut talk = line.talk().unwrap();
    talk.connected(socket, now);
    talk.write(now, now);
    talk.alarm = Some(now);
    drop(talk);
    assert_eq!(line.listen().unwrap_err(), rustix::io::Errno::AGAIN, "there is nothing to read and to do");
    let reading = line.talk().unwrap();
    queue.ask(question());
    drop(reading);
    assert_eq!(line.listen(), Ok((After::Turn, true)), "there is nothing to read, and a question to take up");
    assert_eq!(line.rest(false), Next::Busy);
}
