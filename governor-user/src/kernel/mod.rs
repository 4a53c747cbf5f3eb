//! The kernel plane: observes sockets by the best tier that works here and publishes [`view::Observation`]s.

pub mod view;
