//! What the BPF programs decide, apart from how they reach the kernel: pure functions, tested on the host.
//!
//! The programs themselves are the binary of this package; their entry points are in `main.rs`.
#![cfg_attr(target_arch = "bpf", no_std)]

pub mod packet;
pub mod transition;
