//! Modes that operators set for single listeners at run time: how they are named, and the file in the state folder. Which one
//! holds for a listener is `governor-health`'s to say.

use crate::config::TunerMode;
use crate::process::clock;
use crate::state::{StateDir, Stored, TUNER_SETTINGS};
use governor_api::{TunerSetting, TunerWhich};
use governor_health::backlog::tuner::ModeSetting;
use governor_health::backlog::{ListenerPattern, Selector};
use governor_kernel::proc::own_namespaces::{boot_id, process_scope};
use governor_kernel::proc::privileged;
use serde::{Deserialize, Serialize};

/// Settings at most: each is compared with each listener whose row changes.
const MOST_SETTINGS: usize = 256;

/// Reads what the API was asked for.
///
/// # Errors
/// One line that says which part is wrong and how to write it.
pub(crate) fn selector(which: &TunerWhich) -> Result<Selector, String> {
    let mut selector = Selector { netns: which.netns, pid: which.pid, ..Selector::default() };
    if let Some(text) = &which.listener {
        match text.strip_prefix("cookie:") {
            Some(digits) => selector.cookie = Some(digits.parse().map_err(|_| format!("\"{text}\" is no cookie"))?),
            None => {
                let place = ListenerPattern::parse(text);
                selector.place = Some(place.ok_or_else(|| format!("\"{text}\" is no listener"))?);
            }
        }
    }
    if let Some(path) = &which.cgroup {
        if !path.starts_with('/') {
            return Err(format!("\"{path}\" is no cgroup: it begins with /, the v2 root"));
        }
        selector.cgroup = Some(path.trim_end_matches('/').to_owned());
    }
    Ok(selector)
}

/// Whether it names something that another boot of the machine gives to something else.
fn is_of_this_boot(selector: &Selector) -> bool {
    selector.cookie.is_some() || selector.netns.is_some() || selector.pid.is_some()
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    shown: TunerSetting,
    mode: ModeSetting,
}

/// As it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    setting: TunerSetting,
    boot: String,
    /// The process ids that `started` belongs to.
    scope: String,
    started: Option<u64>,
}

/// All settings.
#[derive(Debug)]
pub(super) struct Settings {
    state: StateDir,
    all: Vec<Setting>,
}

impl Settings {
    /// As they were left. What names a socket, a namespace or a process holds for this boot of the machine only.
    pub(super) fn open(state: &StateDir) -> Self {
        let kept: Vec<Kept> = state.load(TUNER_SETTINGS).unwrap_or_default();
        let (boot, scope) = (boot_id(), process_scope());
        let read = |kept: Kept| {
            let which = selector(&kept.setting.which).ok()?;
            let mode = TunerMode::parse(&kept.setting.mode)?;
            let holds = (kept.boot == boot || !is_of_this_boot(&which)) && (kept.scope == scope || which.pid.is_none());
            let mode = ModeSetting { which, mode, started: kept.started };
            holds.then_some(Setting { shown: kept.setting, mode })
        };
        Self { state: state.clone(), all: kept.into_iter().take(MOST_SETTINGS).filter_map(read).collect() }
    }

    /// Sets a mode for the listeners that are meant; what was set for exactly them before is replaced, and returned.
    ///
    /// # Errors
    /// One line: there are too many, or the process does not run.
    pub(super) fn set(&mut self, which: TunerWhich, mode: TunerMode, by: &str) -> Result<Option<TunerSetting>, String> {
        let selector = selector(&which)?;
        let started = match selector.pid {
            Some(pid) => {
                Some(privileged::started(pid).map_err(|error| format!("process {pid} cannot be read: {error}"))?)
            }
            None => None,
        };
        let before = self.clear(&selector);
        if self.all.len() >= MOST_SETTINGS {
            return Err(format!("{MOST_SETTINGS} run-time settings are there: clear one first"));
        }
        let shown =
            TunerSetting { which, mode: mode.as_str().to_owned(), set_by: by.to_owned(), set_at: clock::wall_time() };
        self.all.push(Setting { shown, mode: ModeSetting { which: selector, mode, started } });
        Ok(before)
    }

    /// Takes a setting away; `None`: there is none for exactly these listeners.
    pub(super) fn clear(&mut self, selector: &Selector) -> Option<TunerSetting> {
        let index = self.all.iter().position(|setting| setting.mode.which == *selector)?;
        Some(self.all.remove(index).shown)
    }

    /// All of them as the tuner takes them, the oldest first.
    pub(super) fn modes(&self) -> Vec<ModeSetting> {
        self.all.iter().map(|setting| setting.mode.clone()).collect()
    }

    /// All of them, the oldest first.
    pub(super) fn views(&self) -> Vec<TunerSetting> {
        self.all.iter().map(|setting| setting.shown.clone()).collect()
    }

    /// Has them stored; what cannot be stored now is stored later.
    pub(super) fn keep(&self) -> Stored {
        let (boot, scope) = (boot_id(), process_scope());
        let kept = |setting: &Setting| Kept {
            setting: setting.shown.clone(),
            boot: boot.clone(),
            scope: scope.clone(),
            started: setting.mode.started,
        };
        let all: Vec<Kept> = self.all.iter().map(kept).collect();
        self.state.store(TUNER_SETTINGS, serde_json::to_vec_pretty(&all).expect("plain data serializes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_observation::ListenerView;

    fn which(listener: &str) -> TunerWhich {
        TunerWhich { listener: Some(listener.to_owned()), ..TunerWhich::default() }
    }

    fn listener(port: u16) -> ListenerView {
        ListenerView {
            cookie: Some(u64::from(port)),
            owner_cgroup: Some("/proxies/a".into()),
            pids: vec![std::process::id()],
            ..ListenerView::bare(port)
        }
    }

    fn settings(folder: &tempfile::TempDir) -> (StateDir, Settings) {
        let state = StateDir::open(folder.path()).unwrap();
        let settings = Settings::open(&state);
        (state, settings)
    }

    fn fits(which: &TunerWhich, port: u16) -> bool {
        selector(which).unwrap().fits(&listener(port))
    }

    #[test]
    fn every_part_of_a_selector_has_to_fit() {
        assert!(fits(&which(":443"), 443) && fits(&which("127.0.0.1:443"), 443) && fits(&which("cookie:443"), 443));
        assert!(!fits(&which(":443"), 444) && !fits(&which("127.0.0.2:443"), 443) && !fits(&which("cookie:1"), 443));
        for (cgroup, inside) in [("/proxies", true), ("/proxies/a", true), ("/", true), ("/prox", false), ("/b", false)]
        {
            let which = TunerWhich { cgroup: Some(cgroup.to_owned()), ..which(":443") };
            assert_eq!(fits(&which, 443), inside, "{cgroup}");
        }
        assert!(fits(&TunerWhich { netns: Some(1), pid: Some(std::process::id()), ..TunerWhich::default() }, 80));
        assert!(!fits(&TunerWhich { netns: Some(2), ..TunerWhich::default() }, 80));
    }

    #[test]
    fn what_is_no_listener_is_refused_by_name() {
        for wrong in ["https", "cookie:x", "443"] {
            assert!(selector(&which(wrong)).unwrap_err().contains(wrong), "{wrong}");
        }
        let relative = TunerWhich { cgroup: Some("proxies".into()), ..TunerWhich::default() };
        assert!(selector(&relative).unwrap_err().contains("begins with /"));
    }

    #[test]
    fn what_was_set_for_exactly_the_same_listeners_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, mut settings) = settings(&folder);
        settings.set(which(":443"), TunerMode::Observe, "uid 0").unwrap();
        let before = settings.set(which(":443"), TunerMode::Enforce, "uid 7").unwrap().unwrap();
        assert_eq!((before.mode.as_str(), before.set_by.as_str()), ("observe", "uid 0"));
        assert_eq!((settings.views().len(), settings.modes()[0].mode), (1, TunerMode::Enforce));
    }

    #[tokio::test]
    async fn settings_outlive_the_daemon_and_those_of_sockets_the_boot_only() {
        let folder = tempfile::tempdir().unwrap();
        let (state, mut settings) = settings(&folder);
        settings.set(which(":443"), TunerMode::Enforce, "uid 0").unwrap();
        settings.set(which("cookie:80"), TunerMode::Enforce, "uid 0").unwrap();
        assert_eq!(settings.keep().warning().await, None);
        let later = Settings::open(&state);
        assert_eq!(later.views(), settings.views());
        let file = folder.path().join("tuner-settings.json");
        let of_another_boot = std::fs::read_to_string(&file).unwrap().replace(&boot_id(), "another");
        state.store_now(TUNER_SETTINGS, of_another_boot.as_bytes()).unwrap();
        let next: Vec<Selector> = Settings::open(&state).modes().into_iter().map(|setting| setting.which).collect();
        assert_eq!(next, [selector(&which(":443")).unwrap()]);
    }

    #[test]
    fn a_process_that_does_not_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, mut settings) = settings(&folder);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_child = || TunerWhich { pid: Some(child.id()), ..which(":443") };
        settings.set(of_child(), TunerMode::Enforce, "uid 0").unwrap();
        assert_eq!(settings.modes()[0].started, privileged::started(child.id()).ok());
        let gone = of_child();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(settings.set(gone, TunerMode::Enforce, "uid 0").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn settings_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, mut settings) = settings(&folder);
        for port in 1..=256 {
            settings.set(which(&format!(":{port}")), TunerMode::Enforce, "uid 0").unwrap();
        }
        assert!(settings.set(which(":1000"), TunerMode::Enforce, "uid 0").unwrap_err().contains("clear one first"));
        settings.set(which(":7"), TunerMode::Observe, "uid 0").unwrap();
    }
}
