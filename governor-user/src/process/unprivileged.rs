//! What a daemon without root's rights has to be configured with: the built-in paths are root's. Turns "permission denied"
//! on one of them into the settings to change.

use crate::config::DaemonConfig;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Adds the settings to change to an error about the daemon's own paths, where this process runs as a plain user and the
/// error is a lack of rights. Any other error is returned as it is.
pub(crate) fn advise(error: anyhow::Error, daemon: &DaemonConfig) -> anyhow::Error {
    let uid = rustix::process::geteuid();
    if uid.is_root() || !is_denied(&error) {
        return error;
    }
    let places = Places::of_user(uid.as_raw(), |name| std::env::var_os(name).map(PathBuf::from));
    let settings = settings(daemon, &places);
    anyhow::anyhow!("{error:#}\nuid {} may not write there. In the configuration file, set:\n{settings}", uid.as_raw())
}

/// Folders that belong to a plain user.
#[derive(Debug)]
struct Places {
    runtime: PathBuf,
    state: PathBuf,
}

impl Places {
    /// By the XDG base directory variables, or what they default to.
    fn of_user(uid: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let absolute = |name| variable(name).filter(|path: &PathBuf| path.is_absolute());
        let runtime = absolute("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{uid}").into());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .unwrap_or_else(|| runtime.clone());
        Self { runtime: runtime.join("governor"), state: state.join("governor") }
    }
}

/// The section to write, with all three paths: one that is writable by chance stays as it is.
fn settings(daemon: &DaemonConfig, places: &Places) -> String {
    let line = |key: &str, now: &Path, then: PathBuf| {
        format!("  {key} = {:?}    # now {}\n", then.display().to_string(), now.display())
    };
    let control = places.runtime.join("control.sock");
    let mut text = "  [daemon]\n".to_owned();
    text.push_str(&line("socket", &daemon.socket, places.runtime.join("proxy.sock")));
    text.push_str(&line("control_socket", &daemon.control_socket, control.clone()));
    text.push_str(&line("state_dir", &daemon.state_dir, places.state.clone()));
    text.push_str(&format!(
        "governorctl and proxies need the new paths too: governorctl --socket {}",
        control.display()
    ));
    text
}

fn is_denied(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    // EROFS: the unit of a user, or a container, whose file system is read-only there.
    causes.any(|cause| matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_users_own_variables() {
        let set = |name: &str| match name {
            "XDG_RUNTIME_DIR" => Some(PathBuf::from("/run/user/7")),
            "HOME" => Some(PathBuf::from("/home/mia")),
            _ => None,
        };
        let places = Places::of_user(7, set);
        assert_eq!(places.runtime, Path::new("/run/user/7/governor"));
        assert_eq!(places.state, Path::new("/home/mia/.local/state/governor"));
        let places = Places::of_user(7, |name| (name == "XDG_STATE_HOME").then(|| "relative".into()));
        assert_eq!(places.state, Path::new("/run/user/7/governor"));
    }

    #[test]
    fn only_a_lack_of_rights_is_explained() {
        let error = |kind| anyhow::Error::new(std::io::Error::from(kind)).context("cannot listen");
        assert!(is_denied(&error(ErrorKind::PermissionDenied)));
        assert!(!is_denied(&error(ErrorKind::AddrInUse)));
        assert!(!is_denied(&anyhow::anyhow!("another governord is running")));
    }
}
