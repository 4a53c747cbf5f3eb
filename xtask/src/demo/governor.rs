//! The governor under demonstration: its configuration, its start, and what `governorctl` says about a listener.

use super::child::{Program, Running};
use super::figures::{KernelFigures, ListenerFigures};
use super::pool;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the daemon may take to answer: it loads its programs and tests itself first.
const START: Duration = Duration::from_secs(20);

/// A running daemon and the program to ask it.
#[derive(Debug)]
pub(super) struct Governor {
    daemon: Running,
    governorctl: PathBuf,
    folder: PathBuf,
}

/// One row of `governorctl --format json listeners`; what is unknown is null.
#[derive(Debug, Deserialize)]
struct Listener {
    port: u16,
    backlog: Option<u64>,
    depth_peak: Option<u64>,
    accepted_total: Option<u64>,
    overflows_total: Option<u64>,
    tier: Option<String>,
}

impl Governor {
    /// Starts a daemon whose sockets and state are in `folder` and waits until it answers.
    pub(super) fn start(binaries: &Path, folder: &Path) -> Result<Self> {
        let file = folder.join("governor.toml");
        fs::write(&file, configuration(folder))?;
        fs::create_dir(folder.join("state"))?;
        let daemon =
            Program::new("governord", binaries.join("governord")).args(["--config".as_ref(), file.as_os_str()]);
        let mut governor =
            Self { daemon: daemon.start(folder)?, governorctl: binaries.join("governorctl"), folder: folder.into() };
        governor.wait_until_it_answers()?;
        Ok(governor)
    }

    /// Where proxies connect.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("proxy.sock")
    }

    /// Fails when the daemon has ended.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        self.daemon.ensure_alive()
    }

    /// What the kernel counted for the listener on a port. Unknown figures are `None`, and so are all when the
    /// listener is not seen.
    pub(super) fn listener(&self, port: u16) -> Result<KernelFigures> {
        let output = self.ask(&["listeners"]).stderr(Stdio::inherit()).output().context("cannot run governorctl")?;
        if !output.status.success() {
            bail!("governorctl listeners ended with {}", output.status);
        }
        let listeners = serde_json::from_slice(&output.stdout).context("governorctl listeners is not as expected")?;
        Ok(figures(listeners, port))
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            self.daemon.ensure_alive()?;
            // 1 is an answer too: something needs attention.
            let answer = self.ask(&["status"]).stderr(Stdio::null()).stdout(Stdio::null()).status()?;
            if matches!(answer.code(), Some(0 | 1)) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("governord does not answer after {} s", START.as_secs());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&self, question: &[&str]) -> Command {
        let mut command = Command::new(&self.governorctl);
        command.arg("--socket").arg(self.folder.join("control.sock")).args(["--format", "json"]).args(question);
        command.stdin(Stdio::null());
        command
    }
}

fn figures(listeners: Vec<Listener>, port: u16) -> KernelFigures {
    let Some(listener) = listeners.into_iter().find(|listener| listener.port == port) else {
        let listener = ListenerFigures { port: Some(port), ..ListenerFigures::default() };
        return KernelFigures { tier: None, listener };
    };
    KernelFigures {
        tier: listener.tier,
        listener: ListenerFigures {
            port: Some(port),
            backlog: listener.backlog,
            depth_peak: listener.depth_peak,
            accepted: listener.accepted_total,
            overflows: listener.overflows_total,
        },
    }
}

/// One pool with the provider's accounts, fair share enforced.
fn configuration(folder: &Path) -> String {
    let path = |name| toml_string(&folder.join(name));
    let mut text = format!(
        "[daemon]\nsocket = {}\ncontrol_socket = {}\nstate_dir = {}\nmetrics_listen = \"off\"\n\n[kernel]\npins = \"off\"\n\n\
         [pools.{}]\nfair_share = 80\nfair_share_mode = \"enforce\"\n",
        path("proxy.sock"),
        path("control.sock"),
        path("state"),
        pool::NAME,
    );
    for account in 1..=pool::ACCOUNTS {
        text.push_str(&format!(
            "\n[[pools.{}.members]]\nname = \"acct-{account:02}\"\nslots = {}\nreserve = {}\n",
            pool::NAME,
            pool::SLOTS,
            pool::RESERVE,
        ));
    }
    text
}

/// A path as a TOML string. Paths that are not UTF-8 do not occur in a temporary folder's default places.
fn toml_string(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_listener_on_the_port_is_picked_and_unknown_figures_stay_unknown() {
        let row = |port: u16, depth_peak: Option<u64>| {
            json!({
                "cookie": 7, "netns": 4_026_531_840_u64, "family": "ipv4", "address": "127.0.0.1", "port": port,
                "backlog": 1024, "depth": 0, "depth_peak": depth_peak, "enqueued_total": null, "accepted_total": null,
                "overflows_total": 0, "drops_total": 0, "owner_cgroup": null, "pids": [1], "tier": "netlink",
            })
        };
        let listeners: Vec<Listener> = serde_json::from_value(json!([row(80, Some(3)), row(81, None)])).unwrap();
        let found = figures(listeners, 81);
        assert_eq!(found.tier.as_deref(), Some("netlink"));
        assert_eq!((found.listener.port, found.listener.backlog), (Some(81), Some(1024)));
        assert_eq!((found.listener.depth_peak, found.listener.accepted), (None, None));
        assert_eq!(found.listener.overflows, Some(0));

        let missing = figures(Vec::new(), 82);
        assert_eq!((missing.tier, missing.listener.port, missing.listener.backlog), (None, Some(82), None));
    }

    #[test]
    fn the_configuration_names_every_account() {
        let text = configuration(Path::new("/run/a \"quoted\" folder"));
        assert_eq!(text.matches("[[pools.chat.members]]").count(), 14);
        assert!(text.contains(r#"socket = "/run/a \"quoted\" folder/proxy.sock""#));
    }
}
