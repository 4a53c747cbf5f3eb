//! One file a hook: what runs when the kernel passes by.

pub(crate) mod accept;
pub(crate) mod discard;
pub(crate) mod enqueue;
pub(crate) mod ingress;
pub(crate) mod queue_scan;
pub(crate) mod refusal;
pub(crate) mod scan;
pub(crate) mod sk_data_ready;
pub(crate) mod state_change;
