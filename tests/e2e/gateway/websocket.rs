//! A WebSocket through the gateway: its bytes pass as they are, and its slot is held until it ends. The client here speaks
//! the protocol by hand (RFC 6455), so that nobody's library is asked to agree with itself.

use crate::site::{Answer, Program, accounts, gateway, request, stats, upstream};
use std::io::{Read, Write};
use std::net::TcpStream;
use support::programs::daemon::Setup;

/// The example handshake of RFC 6455, 1.3.
pub(crate) const HANDSHAKE: &str = "Authorization: Bearer sk-one\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(super) fn open(gateway: &Program) -> Answer {
    request(gateway.address, "GET /v1/realtime", HANDSHAKE, "")
}

/// A text message of up to 125 bytes, masked as a client's must be.
pub(super) fn say(stream: &mut TcpStream, text: &str) {
    const MASK: [u8; 4] = [7, 99, 180, 255];
    let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap()];
    frame.extend(MASK);
    frame.extend(text.bytes().zip(MASK.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
    stream.write_all(&frame).unwrap();
}

/// The next message of up to 125 bytes.
pub(super) fn hear(stream: &mut TcpStream) -> String {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 0x81, "one whole text message");
    let mut text = vec![0; head[1].into()];
    stream.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_websocket_holds_its_slot_until_it_ends_and_passes_every_byte_both_ways() {
    let daemon = Setup::new(&accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
    let upstream = upstream(1, 1);
    let gateway = gateway(&upstream, &daemon.socket());
    let opened = open(&gateway);
    assert_eq!((opened.status, opened.header("sec-websocket-accept")), (101, Some(ACCEPTED)), "{}", opened.head);
    let mut socket = opened.into_stream();
    for n in 0..50 {
        let text = format!("message {n} äöü");
        say(&mut socket, &text);
        assert_eq!(hear(&mut socket), text);
    }
    let leases = daemon.get("/v1/leases");
    assert_eq!((leases.as_array().unwrap().len(), &leases[0]["member"]), (1, &"acct-01".into()), "{leases}");
    assert_eq!(stats(upstream.address)["in_flight"], 1);
    let refused = open(&gateway);
    assert_eq!((refused.status, refused.header("x-governor-origin")), (429, Some("pool")), "{}", refused.head);

    drop(socket);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    let mut again = open(&gateway).into_stream();
    say(&mut again, "hello");
    assert_eq!(hear(&mut again), "hello");
}

#[test]
fn a_websocket_ends_with_its_provider() {
    let daemon = Setup::new(&accounts(1, 1, "")).start();
    let mut upstream = upstream(1, 1);
    let gateway = gateway(&upstream, &daemon.socket());
    let mut socket = open(&gateway).into_stream();
    say(&mut socket, "hello");
    assert_eq!(hear(&mut socket), "hello");
    upstream.kill();
    assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0, "the client hears of it");
    drop(socket);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}
