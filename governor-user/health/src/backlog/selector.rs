//! Which listeners an operator or the configuration means: by socket, address, port, namespace, cgroup or process.

use governor_observation::ListenerView;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Those on a port, on whichever address, or on one address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerPattern {
    /// `None`: on any.
    address: Option<IpAddr>,
    port: u16,
}

impl ListenerPattern {
    /// Reads `:443`, `0.0.0.0:443` or `[::]:443`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(port) = text.strip_prefix(':') {
            return Some(Self { address: None, port: port.parse().ok()? });
        }
        let place: SocketAddr = text.parse().ok()?;
        Some(Self { address: Some(place.ip()), port: place.port() })
    }

    /// Whether it names an address too.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.address.is_some()
    }

    /// Whether a listener is meant.
    #[must_use]
    pub fn fits(&self, address: IpAddr, port: u16) -> bool {
        self.port == port && self.address.is_none_or(|wanted| wanted == address)
    }
}

impl fmt::Display for ListenerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// Listeners that every given part fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// One socket.
    pub cookie: Option<u64>,
    /// On this address and port, or on this port.
    pub place: Option<ListenerPattern>,
    /// In this network namespace, by inode number.
    pub netns: Option<u64>,
    /// Created in this cgroup or below it, by its path below the v2 root without a `/` at its end.
    pub cgroup: Option<String>,
    /// Held by this process.
    pub pid: Option<u32>,
}

impl Selector {
    /// Whether nothing narrows it: every listener is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a listener is meant.
    #[must_use]
    pub fn fits(&self, listener: &ListenerView) -> bool {
        let in_group = |path: &String| {
            let rest = listener.owner_cgroup.as_ref().and_then(|owner| owner.strip_prefix(path.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.cookie.is_none_or(|cookie| listener.cookie == Some(cookie))
            && self.place.is_none_or(|place| place.fits(listener.address, listener.port))
            && self.netns.is_none_or(|netns| listener.netns == netns)
            && self.cgroup.as_ref().is_none_or(in_group)
            && self.pid.is_none_or(|pid| listener.pids.contains(&pid))
    }

    /// How precise it is: a socket before an address, before a port, before a process, a cgroup, a namespace.
    #[must_use]
    pub fn precision(&self) -> u32 {
        let address = self.place.is_some_and(|place| place.has_address());
        let parts = [
            self.cookie.is_some(),
            address,
            self.place.is_some(),
            self.pid.is_some(),
            self.cgroup.is_some(),
            self.netns.is_some(),
        ];
        parts.into_iter().fold(0, |sum, part| sum * 2 + u32::from(part))
    }
}
