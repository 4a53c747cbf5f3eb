//! Rare events as the programs sent them, parsed. A number that this version does not know is no event.

use crate::programs::reading::{ListenerReading, Sees};
use governor_common::abi::{Event, EventKind};

/// One thing that happened to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerEvent {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub kind: EventKind,
    /// The backlog before, for [`EventKind::Relistened`].
    pub previous_backlog: Option<u32>,
    /// The listener as it was then; for [`EventKind::Closed`] these are its last figures.
    pub listener: ListenerReading,
}

impl ListenerEvent {
    /// Reads an event as it lies in the ring buffer; `None` if it is none. `enqueues` and `accepts`: these are seen as they
    /// happen.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], enqueues: bool, accepts: bool) -> Option<Self> {
        let raw = bytemuck::try_pod_read_unaligned(bytes.get(..size_of::<Event>())?).ok()?;
        Self::parse(&raw, Sees { enqueues, accepts })
    }

    /// Reads an event's fields.
    pub(crate) fn parse(raw: &Event, sees: Sees) -> Option<Self> {
        let kind = EventKind::from_raw(raw.kind)?;
        Some(Self {
            at_ns: raw.at_ns,
            kind,
            previous_backlog: match kind {
                EventKind::Relistened => Some(u32::try_from(raw.previous_backlog).unwrap_or(u32::MAX)),
                EventKind::Opened | EventKind::Closed => None,
            },
            listener: ListenerReading::new(raw.cookie, &raw.listener, sees)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::abi::{AF_INET, ListenerState};

    const SEES: Sees = Sees { enqueues: true, accepts: false };

    #[test]
    fn an_event_of_an_unknown_kind_is_passed_over() {
        let listener = ListenerState { family: AF_INET, ..ListenerState::default() };
        let event = Event { kind: 99, listener, ..Event::default() };
        assert_eq!(ListenerEvent::parse(&event, SEES), None);
    }

    #[test]
    fn a_relisten_tells_the_backlog_before() {
        let listener = ListenerState { family: AF_INET, backlog: 64, ..ListenerState::default() };
        let event = Event { kind: EventKind::Relistened.to_raw(), previous_backlog: 16, listener, ..Event::default() };
        let parsed = ListenerEvent::parse(&event, SEES).unwrap();
        assert_eq!((parsed.previous_backlog, parsed.listener.backlog), (Some(16), 64));
    }
}
