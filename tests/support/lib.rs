//! What the whole-system tests share: the programs under test and how to run them. Knows no test.

mod alone;
pub mod bins;
pub mod bpffs;
pub mod cgroup;
pub mod confine;
pub mod cores;
pub mod daemon;
pub mod netns;
pub mod nstat;
#[expect(unsafe_code, reason = "socket options that no crate wraps")]
pub mod options;
pub mod peer;
mod progress;
pub mod proxy;
pub mod python;
pub mod random;
pub mod recording;
pub mod replay;
#[expect(unsafe_code, reason = "io_uring takes raw descriptors")]
pub mod ring;
mod skip;
pub mod ss;
pub mod unit;
pub mod workload;

pub use alone::{Alone, alone};
pub use progress::progress;
pub use skip::{skip, skip_for_lack};
