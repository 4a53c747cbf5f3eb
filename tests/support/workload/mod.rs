//! Closed-loop workloads in virtual time: keys that ask, stream and pause, under one policy or another, and what came
//! of it in figures. Uses the engine as the daemon does; knows no socket and no clock.

mod figures;
mod scenario;
mod simulate;

pub use figures::{Figures, Sample};
pub use scenario::{Band, Choice, Run, Workload};
pub use simulate::Replay;
