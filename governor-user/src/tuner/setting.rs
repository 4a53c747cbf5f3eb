//! Modes that operators set for single listeners at run time, over the configuration: which listeners are meant, which setting
//! holds where several fit, and the file in the state folder. Decides nothing about backlogs.

use crate::config::{ListenerPattern, TunerMode};
use crate::process::clock;
use crate::state::{StateDir, Stored, TUNER_SETTINGS};
use governor_api::{TunerSetting, TunerWhich};
use governor_kernel::proc::own_namespaces::{boot_id, process_scope};
use governor_kernel::proc::privileged;
use governor_observation::ListenerView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Settings at most: each is compared with each listener at each observation.
const MOST_SETTINGS: usize = 256;

/// Which listeners are meant: all that every given part fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    cookie: Option<u64>,
    place: Option<ListenerPattern>,
    netns: Option<u64>,
    cgroup: Option<String>,
    pid: Option<u32>,
}

impl Selector {
    /// Reads what the API was asked for.
    ///
    /// # Errors
    /// One line that says which part is wrong and how to write it.
    pub(crate) fn parse(which: &TunerWhich) -> Result<Self, String> {
        let mut selector = Self { netns: which.netns, cgroup: None, pid: which.pid, cookie: None, place: None };
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

    /// Whether nothing narrows it: every listener is meant.
    pub(crate) fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a listener is meant.
    pub(crate) fn fits(&self, listener: &ListenerView) -> bool {
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
    fn precision(&self) -> u32 {
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

    /// Whether it names something that another boot of the machine gives to something else.
    fn is_of_this_boot(&self) -> bool {
        self.cookie.is_some() || self.netns.is_some() || self.pid.is_some()
    }
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    shown: TunerSetting,
    selector: Selector,
    mode: TunerMode,
    /// Start of the process, in clock ticks since boot: its id is given to another one some time.
    started: Option<u64>,
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
            let selector = Selector::parse(&kept.setting.which).ok()?;
            let mode = TunerMode::parse(&kept.setting.mode)?;
            let holds =
                (kept.boot == boot || !selector.is_of_this_boot()) && (kept.scope == scope || selector.pid.is_none());
            holds.then_some(Setting { shown: kept.setting, selector, mode, started: kept.started })
        };
        Self { state: state.clone(), all: kept.into_iter().take(MOST_SETTINGS).filter_map(read).collect() }
    }

    /// Sets a mode for the listeners that are meant; what was set for exactly them before is replaced, and returned.
    ///
    /// # Errors
    /// One line: there are too many, or the process does not run.
    pub(super) fn set(&mut self, which: TunerWhich, mode: TunerMode, by: &str) -> Result<Option<TunerSetting>, String> {
        let selector = Selector::parse(&which)?;
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
        self.all.push(Setting { shown, selector, mode, started });
        Ok(before)
    }

    /// Takes a setting away; `None`: there is none for exactly these listeners.
    pub(super) fn clear(&mut self, selector: &Selector) -> Option<TunerSetting> {
        let index = self.all.iter().position(|setting| setting.selector == *selector)?;
        Some(self.all.remove(index).shown)
    }

    /// The mode that was set for a listener: by the most precise setting that fits, and of equally precise ones by the last.
    pub(super) fn mode(&self, listener: &ListenerView) -> Option<TunerMode> {
        let fitting = self.all.iter().filter(|setting| setting.selector.fits(listener));
        fitting.max_by_key(|setting| setting.selector.precision()).map(|setting| setting.mode)
    }

    /// Takes away what can mean nothing any more: settings of processes that ended, and of namespaces that are not among
    /// `namespaces`. Returns them.
    pub(super) fn retire(&mut self, namespaces: &BTreeSet<u64>) -> Vec<TunerSetting> {
        let holds = |setting: &Setting| {
            let lives = setting.selector.pid.is_none_or(|pid| privileged::started(pid).ok() == setting.started);
            lives && setting.selector.netns.is_none_or(|netns| namespaces.contains(&netns))
        };
        let (kept, retired): (Vec<_>, Vec<_>) = std::mem::take(&mut self.all).into_iter().partition(holds);
        self.all = kept;
        retired.into_iter().map(|setting| setting.shown).collect()
    }

    /// Namespaces that settings name.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter_map(|setting| setting.selector.netns)
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
            started: setting.started,
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
        Selector::parse(which).unwrap().fits(&listener(port))
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
            assert!(Selector::parse(&which(wrong)).unwrap_err().contains(wrong), "{wrong}");
        }
        let relative = TunerWhich { cgroup: Some("proxies".into()), ..TunerWhich::default() };
        assert!(Selector::parse(&relative).unwrap_err().contains("begins with /"));
    }

    #[test]
    fn the_more_precise_setting_wins_and_the_later_of_equals() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, mut settings) = settings(&folder);
        assert_eq!(settings.mode(&listener(443)), None);
        let cgroup = TunerWhich { cgroup: Some("/proxies".into()), ..TunerWhich::default() };
        settings.set(cgroup, TunerMode::Enforce, "uid 0").unwrap();
        assert_eq!(settings.mode(&listener(443)), Some(TunerMode::Enforce));
        settings.set(which(":443"), TunerMode::Observe, "uid 0").unwrap();
        assert_eq!(settings.mode(&listener(443)), Some(TunerMode::Observe));
        assert_eq!(settings.mode(&listener(80)), Some(TunerMode::Enforce));
        let before = settings.set(which(":443"), TunerMode::Enforce, "uid 7").unwrap().unwrap();
        assert_eq!((before.mode.as_str(), before.set_by.as_str()), ("observe", "uid 0"));
        assert_eq!((settings.views().len(), settings.mode(&listener(443))), (2, Some(TunerMode::Enforce)));
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
        let next = Settings::open(&state);
        assert_eq!((next.mode(&listener(443)), next.mode(&listener(80))), (Some(TunerMode::Enforce), None));
    }

    #[test]
    fn a_setting_ends_with_its_process_or_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let (_state, mut settings) = settings(&folder);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        settings.set(TunerWhich { pid: Some(child.id()), ..which(":443") }, TunerMode::Enforce, "uid 0").unwrap();
        settings.set(TunerWhich { netns: Some(7), ..which(":443") }, TunerMode::Enforce, "uid 0").unwrap();
        assert_eq!(settings.retire(&BTreeSet::from([7])), []);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(settings.retire(&BTreeSet::from([7]))[0].which.pid, Some(child.id()));
        assert_eq!(settings.retire(&BTreeSet::new())[0].which.netns, Some(7));
        let gone = settings.set(TunerWhich { pid: Some(child.id()), ..which(":443") }, TunerMode::Enforce, "uid 0");
        assert!(gone.unwrap_err().contains("cannot be read"));
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
