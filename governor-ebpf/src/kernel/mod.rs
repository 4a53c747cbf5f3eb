//! The kernel's structs, read through the offsets of the running kernel.

pub(crate) mod offsets;
pub(crate) mod sock;
