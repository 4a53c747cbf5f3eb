//! Every byte that crosses a boundary, and nothing else: kernel to daemon ([`abi`]), proxy to daemon ([`wire`], feature
//! `wire`) and the page of shared memory between them ([`signal`], feature `map`). Knows no policy, reads no clock.
#![cfg_attr(not(any(test, feature = "wire", feature = "aya")), no_std)]

pub mod abi;
#[cfg(feature = "map")]
pub mod signal;
#[cfg(feature = "wire")]
pub mod wire;
