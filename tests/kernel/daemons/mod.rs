//! A real daemon: killed, starved of descriptors, on a machine that lacks something.

pub(crate) mod failing;
pub(crate) mod life;
pub(crate) mod restart;
pub(crate) mod surroundings;
