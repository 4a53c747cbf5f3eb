//! The daemon's Unix sockets while it runs. A reload makes a socket again whose file is gone; `doctor` reports it.

use crate::config::DaemonConfig;
use crate::transport::listener::{self, BoundSocket, SocketFile};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// How long what was queued before the file went is still accepted.
const OVERLAP: Duration = Duration::from_secs(1);

/// A socket as it is configured.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// The setting of its path.
    pub key: &'static str,
    /// Its path.
    pub path: PathBuf,
    /// Its file mode.
    pub mode: u32,
    /// Its group, if it is to have another.
    pub group: Option<String>,
}

impl SocketConfig {
    /// The socket that proxies connect to.
    #[must_use]
    pub fn of_proxies(daemon: &DaemonConfig) -> Self {
        let DaemonConfig { socket: path, socket_mode: mode, socket_group: group, .. } = daemon.clone();
        Self { key: "daemon.socket", path, mode, group }
    }

    /// The socket of the control API.
    #[must_use]
    pub fn of_control(daemon: &DaemonConfig) -> Self {
        let DaemonConfig { control_socket: path, control_mode: mode, control_group: group, .. } = daemon.clone();
        Self { key: "daemon.control_socket", path, mode, group }
    }

    /// The socket that metrics are read from, if there is to be one. Its mode and group are the control socket's.
    #[must_use]
    pub fn of_metrics(daemon: &DaemonConfig) -> Option<Self> {
        let path = daemon.metrics_socket.clone()?;
        Some(Self { key: "daemon.metrics_socket", path, ..Self::of_control(daemon) })
    }

    /// Opens it.
    ///
    /// # Errors
    /// As for [`listener::bind`].
    pub fn bind(&self) -> anyhow::Result<BoundSocket> {
        listener::bind(&self.path, self.mode, self.group.as_deref())
    }
}

/// What a reload did about sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Paths of sockets that were made again.
    pub made: Vec<String>,
    /// Why others could not be, one line each.
    pub failed: Vec<String>,
}

/// Starts to accept on a listener.
type Serve = Box<dyn Fn(UnixListener) -> JoinHandle<()> + Send>;

struct Served {
    config: SocketConfig,
    file: SocketFile,
    serve: Serve,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("config", &self.config).field("file", &self.file).finish_non_exhaustive()
    }
}

/// The sockets that are served.
#[derive(Debug, Default)]
pub struct Sockets(Vec<Served>);

impl Sockets {
    /// Serves a socket, and the one that a reload makes in its place.
    pub fn serve(
        &mut self,
        config: SocketConfig,
        bound: BoundSocket,
        serve: impl Fn(UnixListener) -> JoinHandle<()> + Send + 'static,
    ) {
        let BoundSocket { listener, file } = bound;
        let accepting = serve(listener);
        self.0.push(Served { config, file, serve: Box::new(serve), accepting });
    }

    /// Settings and paths of sockets whose file is gone or another's: nothing connects to them.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, PathBuf)> {
        let missing = self.0.iter().filter(|one| !one.file.is_there());
        missing.map(|one| (one.config.key, one.config.path.clone())).collect()
    }

    /// Makes those again.
    pub fn restore(&mut self) -> Restored {
        let mut restored = Restored::default();
        for one in self.0.iter_mut().filter(|one| !one.file.is_there()) {
            match one.config.bind() {
                Ok(BoundSocket { listener, file }) => {
                    let before = std::mem::replace(&mut one.accepting, (one.serve)(listener));
                    one.file = file;
                    tokio::spawn(async move {
                        tokio::time::sleep(OVERLAP).await;
                        before.abort();
                    });
                    restored.made.push(one.config.path.display().to_string());
                }
                Err(error) => restored.failed.push(format!("{} cannot be made again: {error:#}", one.config.key)),
            }
        }
        restored
    }

    /// Stops accepting and removes the files.
    pub fn close(&mut self) {
        for one in self.0.drain(..) {
            one.accepting.abort();
        }
    }
}
