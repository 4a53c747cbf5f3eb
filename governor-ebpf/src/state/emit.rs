//! Rare events to the ring buffer. Never from a path that runs per connection: a wake-up there costs more than the
//! connection. The reader polls.

use crate::state::error::Error;
use crate::state::maps::EVENTS;
use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use governor_common::abi::{Event, EventKind, ListenerState};

/// Sends one event; a full buffer is an error to be counted.
#[inline(always)]
pub(crate) fn listener(
    kind: EventKind,
    cookie: u64,
    previous_backlog: u64,
    listener: &ListenerState,
) -> Result<(), Error> {
    send(&event(kind, cookie, previous_backlog, *listener))
}

/// An event that is not sent yet. A program that changes `listener` does so in place: kernel 6.1 counts two copies of it
/// beyond the 512 bytes of a stack.
#[inline(always)]
pub(crate) fn event(kind: EventKind, cookie: u64, previous_backlog: u64, listener: ListenerState) -> Event {
    Event {
        // SAFETY: takes no argument.
        at_ns: unsafe { bpf_ktime_get_ns() },
        cookie,
        previous_backlog,
        listener,
        kind: kind.to_raw(),
        _pad: 0,
    }
}

/// Sends an event; a full buffer is an error to be counted.
#[inline(always)]
pub(crate) fn send(event: &Event) -> Result<(), Error> {
    EVENTS.output(event, u64::from(BPF_RB_NO_WAKEUP)).map_err(|_| Error::EventLost)
}
