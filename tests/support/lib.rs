//! What the whole-system tests share: the programs under test and how to run them. Knows no test.

mod alone;
pub mod cores;
pub mod machine;
#[expect(unsafe_code, reason = "socket options that no crate wraps")]
pub mod options;
pub mod programs;
mod progress;
pub mod random;
pub mod recording;
pub mod replay;
#[expect(unsafe_code, reason = "io_uring takes raw descriptors")]
pub mod ring;
mod skip;
pub mod workload;

pub use alone::{Alone, alone};
pub use progress::progress;
pub use skip::{skip, skip_for_lack};
