//! The programs' maps, typed. Reads them whole and removes what is finished; knows no meaning of a value. Every walk is
//! bounded, because the kernel starts over when the key it stands on is removed meanwhile.

use crate::programs::closings::Closings;
use crate::programs::pin;
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf, SkStorage};
use governor_common::abi::{
    CgroupKey, CgroupState, Control, Event, GlobalStats, ListenPort, ListenerState, MAX_CGROUPS, MAX_LISTEN_PORTS,
    MAX_LISTENERS, Marker, QuickMark, Sojourn,
};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use thiserror::Error;

/// Events taken from the ring buffer at a time; the rest waits for the next read.
const EVENTS_PER_READ: usize = 4_096;

/// Why a map cannot be used.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// The object was built from other sources than this program.
    #[error("the eBPF object has no map {0}")]
    Missing(&'static str),
    /// The kernel refused.
    #[error("map {name}")]
    Kernel {
        /// The map.
        name: &'static str,
        /// What aya says.
        #[source]
        source: MapError,
    },
}

/// Where maps are taken from.
pub(crate) enum Source<'a> {
    /// An object that was just loaded.
    Object(&'a mut Ebpf),
    /// The folder in which an earlier run of the daemon pinned them.
    Pins(&'a Path),
}

/// All maps.
pub(crate) struct Maps {
    listeners: HashMap<MapData, u64, ListenerState>,
    cgroups: HashMap<MapData, CgroupKey, CgroupState>,
    listen_ports: HashMap<MapData, ListenPort, u32>,
    stats: Array<MapData, GlobalStats>,
    markers: SkStorage<MapData, Marker>,
    quick_marks: Array<MapData, QuickMark>,
    sojourn: HashMap<MapData, u64, Sojourn>,
    control: Array<MapData, Control>,
    events: RingBuf<MapData>,
    /// Until they are read.
    closings: Option<Closings>,
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").finish_non_exhaustive()
    }
}

impl Maps {
    /// Takes the maps out of where they are.
    pub(crate) fn take(mut source: Source<'_>) -> Result<Self, Error> {
        let source = &mut source;
        Ok(Self {
            listeners: typed(source, "LISTENERS")?,
            cgroups: typed(source, "CGROUPS")?,
            listen_ports: typed(source, "LISTEN_PORTS")?,
            stats: typed(source, "STATS")?,
            markers: typed(source, "MARKERS")?,
            quick_marks: typed(source, "QUICK_MARKS")?,
            sojourn: typed(source, "SOJOURN")?,
            control: typed(source, "CONTROL")?,
            events: typed(source, "EVENTS")?,
            closings: Some(Closings::take(source)?),
        })
    }

    /// The ends of connections, for the one who asks first.
    pub(crate) fn take_closings(&mut self) -> Option<Closings> {
        self.closings.take()
    }

    /// Every listener by its cookie.
    pub(crate) fn listeners(&self) -> Result<BTreeMap<u64, ListenerState>, Error> {
        whole(&self.listeners, "LISTENERS", MAX_LISTENERS)
    }

    /// One listener.
    pub(crate) fn listener(&self, cookie: u64) -> Result<Option<ListenerState>, Error> {
        found(self.listeners.get(&cookie, 0), "LISTENERS")
    }

    /// Removes a listener's entry and its waits; one that is gone already is fine.
    pub(crate) fn forget_listener(&mut self, cookie: u64) -> Result<(), Error> {
        found(self.listeners.remove(&cookie), "LISTENERS")?;
        found(self.sojourn.remove(&cookie), "SOJOURN").map(drop)
    }

    /// The waits of one listener.
    pub(crate) fn sojourn(&self, cookie: u64) -> Result<Option<Sojourn>, Error> {
        found(self.sojourn.get(&cookie, 0), "SOJOURN")
    }

    /// The settings that the programs read.
    pub(crate) fn control(&self) -> Result<Control, Error> {
        self.control.get(&0, 0).map_err(|source| Error::Kernel { name: "CONTROL", source })
    }

    /// Writes the settings that the programs read.
    pub(crate) fn set_control(&mut self, control: Control) -> Result<(), Error> {
        self.control.set(0, control, 0).map_err(|source| Error::Kernel { name: "CONTROL", source })
    }

    /// Every cgroup's counters in each network namespace.
    pub(crate) fn cgroups(&self) -> Result<BTreeMap<CgroupKey, CgroupState>, Error> {
        whole(&self.cgroups, "CGROUPS", MAX_CGROUPS)
    }

    /// Removes a cgroup's counters in a network namespace unless something of it is open there; says whether they are
    /// gone.
    pub(crate) fn forget_cgroup(&mut self, key: CgroupKey) -> Result<bool, Error> {
        match found(self.cgroups.get(&key, 0), "CGROUPS")? {
            Some(state) if state.inbound() != 0 || state.outbound() != 0 => Ok(false),
            Some(_) | None => found(self.cgroups.remove(&key), "CGROUPS").map(|_| true),
        }
    }

    /// Forgets the listening ports that a scan left behind.
    pub(crate) fn clear_listen_ports(&mut self) -> Result<(), Error> {
        let stale: Vec<ListenPort> = whole(&self.listen_ports, "LISTEN_PORTS", MAX_LISTEN_PORTS)?.into_keys().collect();
        for port in stale {
            found(self.listen_ports.remove(&port), "LISTEN_PORTS")?;
        }
        Ok(())
    }

    /// The programs' own health.
    pub(crate) fn stats(&self) -> Result<GlobalStats, Error> {
        self.stats.get(&0, 0).map_err(|source| Error::Kernel { name: "STATS", source })
    }

    /// The mark of an open socket of this process, of either kind.
    pub(crate) fn marker(&self, socket: &(impl AsRawFd + AsFd)) -> Result<Option<Marker>, Error> {
        // Without a cookie it has no quick mark.
        let cookie = rustix::net::sockopt::socket_cookie(socket).unwrap_or(0);
        match self.quick_mark(cookie)? {
            Some(QuickMark { cgroup, enqueued_ns, direction, .. }) => {
                Ok(Some(Marker { cgroup, enqueued_ns, direction, counted: 1, ..Marker::default() }))
            }
            None => found(self.markers.get(socket, 0), "MARKERS"),
        }
    }

    /// The quick mark of the socket with this cookie.
    pub(crate) fn quick_mark(&self, cookie: u64) -> Result<Option<QuickMark>, Error> {
        let mark = found(self.quick_marks.get(&self.place_of(cookie), 0), "QUICK_MARKS")?;
        Ok(mark.filter(|mark| mark.cookie == cookie && cookie != 0))
    }

    /// Every quick mark. That is a system call for each place, some 50 ms in all, so not for every audit.
    pub(crate) fn quick_marks(&self) -> Result<Vec<QuickMark>, Error> {
        let taken = |mark: &Result<QuickMark, MapError>| mark.as_ref().map_or(true, |mark| mark.cookie != 0);
        let all = self.quick_marks.iter().filter(taken).collect::<Result<_, _>>();
        all.map_err(|source| Error::Kernel { name: "QUICK_MARKS", source })
    }

    /// Frees the place of a quick mark whose connection is gone. No program touches it until then: a place is claimed
    /// only where it is free, and freed only by its own connection.
    pub(crate) fn free_quick_mark(&mut self, cookie: u64) -> Result<(), Error> {
        if self.quick_mark(cookie)?.is_none() {
            return Ok(());
        }
        let place = self.place_of(cookie);
        let free = self.quick_marks.set(place, QuickMark::default(), 0);
        free.map_err(|source| Error::Kernel { name: "QUICK_MARKS", source })
    }

    fn place_of(&self, cookie: u64) -> u32 {
        let place = cookie & u64::from(self.quick_marks.len().saturating_sub(1));
        u32::try_from(place).expect("as the table's length")
    }

    /// What a connection leaves behind whose close was not seen.
    #[cfg(test)]
    pub(crate) fn leave_behind(&mut self, mark: QuickMark, netns: u32) {
        self.quick_marks.set(self.place_of(mark.cookie), mark, 0).unwrap();
        let key = CgroupKey::new(mark.cgroup, netns);
        let mut counters = self.cgroups.get(&key, 0).unwrap();
        counters.outbound_opened += 1;
        self.cgroups.insert(key, counters, 0).unwrap();
    }

    /// Hands over the events that wait, oldest first; anything that has not an event's size is passed over.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Event)) {
        for _ in 0..EVENTS_PER_READ {
            let Some(item) = self.events.next() else { return };
            if let Ok(event) = bytemuck::try_pod_read_unaligned(&item) {
                each(event);
            }
        }
    }
}

pub(crate) fn typed<T: TryFrom<Map, Error = MapError>>(
    source: &mut Source<'_>,
    name: &'static str,
) -> Result<T, Error> {
    let map = match source {
        Source::Object(object) => object.take_map(name).ok_or(Error::Missing(name))?,
        Source::Pins(folder) => {
            let pinned = MapData::from_pin(folder.join(pin::map_name(name))).and_then(Map::from_map_data);
            pinned.map_err(|source| Error::Kernel { name, source })?
        }
    };
    T::try_from(map).map_err(|source| Error::Kernel { name, source })
}

/// A walk over all entries. Twice the map's size bounds a walk that was sent back to the start.
fn whole<K: aya::Pod + Ord, V: aya::Pod>(
    map: &HashMap<MapData, K, V>,
    name: &'static str,
    max: u32,
) -> Result<BTreeMap<K, V>, Error> {
    let bound = usize::try_from(max).unwrap_or(usize::MAX).saturating_mul(2);
    map.iter().take(bound).collect::<Result<_, _>>().map_err(|source| Error::Kernel { name, source })
}

fn found<T>(result: Result<T, MapError>, name: &'static str) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(None),
        // Removing an absent key is reported as the system call's own error.
        Err(MapError::SyscallError(error)) if error.io_error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Kernel { name, source }),
    }
}
