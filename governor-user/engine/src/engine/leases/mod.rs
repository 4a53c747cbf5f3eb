//! Leases from grant to end, and the sessions that hold them.

mod lifecycle;
mod relocate;
mod sessions;
mod suspend;
