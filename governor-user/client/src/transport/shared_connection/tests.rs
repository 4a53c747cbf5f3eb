//! What becomes of a command while another thread holds the connection.

use super::*;
use crate::config::Config;
use crate::lease::request::AcquireRequest;
use crate::protocol::exchange::{Exchange, Publisher};
use governor_common::wire::reply::Overload;
use governor_common::wire::socket::Socket;
use std::os::unix::net::UnixStream;
use tokio::sync::{broadcast, oneshot, watch};

fn connection() -> SharedConnection {
    let publisher = Publisher {
        overload: watch::channel(Overload::default()).0,
        connected: watch::channel(false).0,
        tiers: broadcast::Sender::new(1),
    };
    let queue = Queue::new();
    let exchange = Exchange::new(&Config::new("/nowhere"), queue.downgrade(), publisher, Instant::now());
    SharedConnection::new(&queue, Connection::new(exchange, watch::channel(None).1))
}

fn question() -> Command {
    let ask = Box::new(AcquireRequest::new("chat"));
    Command::Acquire { ticket: 1, ask, reply: oneshot::channel().0 }
}

#[tokio::test]
async fn what_is_asked_while_the_task_reads_is_taken_up_after_it() {
    let shared = connection();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let socket = Arc::new(Socket::new(ours).unwrap());
    let now = Instant::now();
    let mut connection = shared.connection().unwrap();
    connection.connected(socket, now);
    connection.write(now, now);
    connection.alarm = Some(now);
    drop(connection);
    assert_eq!(shared.listen().unwrap_err(), rustix::io::Errno::AGAIN, "there is nothing to read and to do");
    let reading = shared.connection().unwrap();
    shared.ask(question());
    drop(reading);
    assert_eq!(shared.listen(), Ok((After::Turn, true)), "there is nothing to read, and a question to take up");
    assert_eq!(shared.rest(false), Next::Busy);
}
