//! The settings of the library. Plain values with working defaults; reads no file and no environment.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to reach the daemon and what to do without it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The daemon's proxy socket.
    pub socket: PathBuf,
    /// Name of this proxy on the operator's screen, at most 128 bytes; longer names are cut.
    pub name: String,
    /// What keys API keys: the same on every worker and node that shares a pool, else one key counts as several.
    pub secret: NodeSecret,
    /// What to do while the daemon is away.
    pub fallback: Fallback,
    /// Counted requests this process may run while the daemon was never reached. Afterwards the daemon's own limits
    /// are remembered.
    pub node_cap: u32,
    /// How long a request waits for a daemon that is restarting, busy or not yet there before the fallback decides.
    /// Counted from the moment the connection was lost, so a long outage does not delay later requests.
    pub patience: Duration,
    /// Longest park that a request which names none may be given again after the daemon restarted.
    pub max_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/run/governor/proxy.sock"),
            name: format!("proxy-{}", std::process::id()),
            secret: NodeSecret::random(),
            fallback: Fallback::Open,
            node_cap: 1000,
            patience: Duration::from_secs(1),
            max_wait: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Defaults with another socket.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), ..Self::default() }
    }
}

/// What to do while the daemon is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Go on within the last known share of each pool (capacity / live sessions, at least 1 per key); before any
    /// contact within [`Config::node_cap`] only.
    #[default]
    Open,
    /// Refuse everything with 529.
    Closed,
}

/// The key of the keyed hash that stands for API keys. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct NodeSecret(Arc<[u8]>);

impl NodeSecret {
    /// A secret shared by the workers of one deployment. 32 random bytes are good.
    ///
    /// # Errors
    ///
    /// [`EmptySecret`] for one without any byte but white space: with a variable that is set to nothing, anyone who
    /// knows an API key could compute its hash.
    pub fn new(bytes: &[u8]) -> Result<Self, EmptySecret> {
        if bytes.trim_ascii().is_empty() { Err(EmptySecret) } else { Ok(Self(bytes.into())) }
    }

    /// A secret of this process alone: right for one worker, wrong for several that share pools.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random::<[u8; 32]>().as_slice().into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A node secret of no bytes, or of white space only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node secret is empty: set the same random bytes (32 are good) for every worker that shares a pool")]
pub struct EmptySecret;

impl fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSecret(redacted)")
    }
}
