//! Golden bytes of every message, round trips of generated ones, and bytes that mean harm.

mod generated;
mod golden;
mod harm;
mod parts;

use super::{encode_reply, encode_request};
use crate::wire::KeyHash;
use crate::wire::frame::{Frame, decode_frame};
use crate::wire::reply::Reply;
use crate::wire::request::Request;
use bytes::BytesMut;

const KEY: KeyHash = KeyHash([0xab; 16]);

fn request_bytes(message: &Request, request: u32) -> BytesMut {
    let mut buffer = BytesMut::new();
    encode_request(message, request, &mut buffer).unwrap();
    buffer
}

fn reply_bytes(message: &Reply, request: u32) -> BytesMut {
    let mut buffer = BytesMut::new();
    encode_reply(message, request, &mut buffer).unwrap();
    buffer
}

fn only_frame(mut buffer: BytesMut) -> Frame {
    let frame = decode_frame(&mut buffer).unwrap().expect("one whole frame");
    assert!(buffer.is_empty(), "bytes are left over");
    frame
}
