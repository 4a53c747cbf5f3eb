//! Events of any bytes, as they come out of the kernel's ring buffer.

use super::outcome;
use governor_common::abi::{AF_INET, AF_INET6, Event, EventKind, ListenerState};
use governor_kernel::programs::tracepoint::ListenerEvent;

pub(crate) fn hold(bytes: &[u8]) -> u64 {
    let (enqueues, accepts) = match bytes.last() {
        Some(last) => (last & 1 != 0, last & 2 != 0),
        None => (false, false),
    };
    let seen = ListenerEvent::from_bytes(bytes, enqueues, accepts).map(|event| {
        assert_eq!(event.previous_backlog.is_some(), event.kind == EventKind::Relistened);
        let listener = &event.listener;
        (event.kind.to_raw(), listener.address.is_ipv4(), listener.port > 0, listener.backlog > listener.depth)
    });
    outcome(&(seen, bytes.len() >= 160))
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let listeners = [AF_INET, AF_INET6].map(|family| ListenerState { family, backlog: 64, ..ListenerState::default() });
    [EventKind::Opened, EventKind::Closed, EventKind::Relistened]
        .into_iter()
        .flat_map(|kind| listeners.map(|listener| Event { kind: kind.to_raw(), listener, ..Event::default() }))
        .map(|event| bytemuck::bytes_of(&event).to_vec())
        .collect()
}
