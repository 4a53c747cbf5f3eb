//! Every byte that crosses a boundary, and nothing else: kernel to daemon ([`abi`]) and proxy to daemon
//! ([`wire`], feature `wire`). Knows no policy, opens no file, reads no clock.
#![cfg_attr(not(any(test, feature = "wire", feature = "aya")), no_std)]

pub mod abi;
#[cfg(feature = "wire")]
pub mod wire;
