//! A machine with listeners: what the tuner observes, and what becomes of its actions.

use governor_engine::time::{Duration, Instant};
use governor_health::backlog::tuner::{
    Action, Called, Done, Failure, Input, Memory, ModeSetting, Outcome, Output, Record, Socket, Tuner,
};
use governor_health::backlog::{AtExit, ListenerPolicy, Selector, TunerAction, TunerConfig, TunerMode};
use governor_health::{Evidence, Judged, Report, Verdict};
use governor_observation::{
    Conntrack, ListenerName, ListenerView, NamespaceCounters, NamespaceView, Observation, Tier,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const POLICY: ListenerPolicy = ListenerPolicy {
    mode: TunerMode::Enforce,
    target: 1024,
    max: 4096,
    max_wait: Duration::from_millis(500),
    quiet: Duration::from_secs(600),
};

pub(crate) fn config() -> TunerConfig {
    TunerConfig { global: POLICY, listeners: Vec::new(), memory_mib: 64, raise_somaxconn: false, at_exit: AtExit::Keep }
}

/// A listener as the kernel holds it.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) view: ListenerView,
    /// No right to duplicate its descriptor.
    pub(crate) is_denied: bool,
    /// It is not in the kernel's table just now.
    pub(crate) is_hidden: bool,
}

/// The machine, and the tuner that watches it.
pub(crate) struct Machine {
    pub(crate) tuner: Tuner,
    pub(crate) now: Instant,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    pub(crate) somaxconn: BTreeMap<u64, u32>,
    /// Start of each process.
    pub(crate) started: BTreeMap<u32, u64>,
    pub(crate) unread: Vec<u64>,
    /// What the report says of every listener.
    pub(crate) evidence: Evidence,
    /// What came out, in order.
    pub(crate) outputs: Vec<Output>,
    pub(crate) memory: Memory,
    /// Rows say something else in every observation.
    pub(crate) toggles: bool,
}

impl Machine {
    pub(crate) fn new(config: TunerConfig) -> Self {
        Self {
            tuner: Tuner::new(config, Memory::default(), Vec::new()),
            now: Instant(1_000_000_000),
            listeners: BTreeMap::new(),
            somaxconn: BTreeMap::from([(1, 4096), (2, 4096)]),
            started: BTreeMap::new(),
            unread: Vec::new(),
            evidence: Evidence::default(),
            outputs: Vec::new(),
            memory: Memory::default(),
            toggles: false,
        }
    }

    /// With one listener on port 80, which process 7 holds, that has been seen once.
    pub(crate) fn with_one(config: TunerConfig) -> Self {
        let mut machine = Self::new(config);
        machine.open(1, 80, 128, 7);
        machine.tick();
        machine
    }

    pub(crate) fn open(&mut self, cookie: u64, port: u16, backlog: u32, pid: u32) {
        let view = ListenerView {
            cookie: Some(cookie),
            backlog: Some(backlog),
            depth_peak: Some(0),
            enqueued_total: Some(0),
            accepted_total: Some(0),
            overflows_total: Some(0),
            inode: Some(cookie * 10),
            pids: vec![pid],
            owner_cgroup: Some("/proxies/a".to_owned()),
            tier: Tier::Tracepoint,
            ..ListenerView::bare(port)
        };
        self.started.entry(pid).or_insert(1);
        self.listeners.insert(cookie, Listener { view, is_denied: false, is_hidden: false });
    }

    pub(crate) fn backlog(&self, cookie: u64) -> u32 {
        self.listeners[&cookie].view.backlog.unwrap()
    }

    /// Another hand calls `listen()`.
    pub(crate) fn listen(&mut self, cookie: u64, backlog: u32) {
        self.listeners.get_mut(&cookie).unwrap().view.backlog = Some(backlog);
    }

    pub(crate) fn observation(&self) -> Observation {
        let mut listeners: Vec<ListenerView> =
            self.listeners.values().filter(|one| !one.is_hidden).map(|one| one.view.clone()).collect();
        listeners.sort_by_key(|view| (view.netns, view.port, view.address, view.cookie));
        let namespaces = self.somaxconn.iter().map(|(netns, somaxconn)| NamespaceView {
            netns: *netns,
            somaxconn: Some(*somaxconn),
            home: false,
            generation: 0,
            counters: NamespaceCounters::default(),
            recent: NamespaceCounters::default(),
            conntrack: Conntrack::default(),
            findings: Vec::new(),
        });
        Observation {
            taken_ns: self.now.0,
            tier: Tier::Tracepoint,
            namespaces: namespaces.collect(),
            unread: self.unread.clone(),
            listeners,
            ..Observation::default()
        }
    }

    pub(crate) fn report(&self, seen: &Observation) -> Report {
        let judged = |view: &ListenerView| {
            Arc::new(Judged {
                cookie: view.cookie,
                netns: view.netns,
                address: view.address,
                port: view.port,
                pids: Vec::new(),
                watched: false,
                verdict: Verdict::Ok,
                evidence: self.evidence.clone(),
            })
        };
        Report { listeners: seen.listeners.iter().map(judged).collect(), ..Report::default() }
    }

    /// A tenth of a second passes, and the machine is observed.
    pub(crate) fn tick(&mut self) {
        self.now = self.now.after(Duration::from_millis(100));
        for listener in self.listeners.values_mut().filter(|_| self.toggles) {
            let cgroup = &mut listener.view.owner_cgroup;
            *cgroup =
                Some(if cgroup.as_deref() == Some("/proxies/a") { "/proxies/b" } else { "/proxies/a" }.to_owned());
        }
        let seen = Arc::new(self.observation());
        let wanted = self.tuner.processes(&seen);
        let started = wanted.into_iter().filter_map(|pid| Some((pid, *self.started.get(&pid)?))).collect();
        let report = Arc::new(self.report(&seen));
        self.take(Input::Observed { seen, report, started });
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.tick();
        }
    }

    /// So many clients come and, as far as there is room, are accepted within a tenth of a second.
    pub(crate) fn burst(&mut self, cookie: u64, clients: u32) {
        let view = &mut self.listeners.get_mut(&cookie).unwrap().view;
        let room = view.backlog.unwrap().saturating_add(1);
        let met = clients.min(room);
        view.depth_peak = view.depth_peak.max(Some(met));
        let add = |total: &mut Option<u64>, more: u32| *total = total.map(|total| total + u64::from(more));
        add(&mut view.enqueued_total, met);
        add(&mut view.accepted_total, met);
        add(&mut view.overflows_total, clients - met);
        self.tick();
    }

    /// Takes a fact to the tuner and does what it orders.
    pub(crate) fn take(&mut self, input: Input) {
        self.tuner.handle_input(input, self.now);
        while let Some(output) = self.tuner.poll_output() {
            self.outputs.push(output.clone());
            match output {
                Output::Act(action) => {
                    assert_eq!(self.tuner.poll_output(), None, "nothing comes before the result");
                    let done = self.execute(&action);
                    self.tuner.handle_input(Input::Done(done), self.now);
                }
                Output::Keep(memory) => self.memory = memory,
                Output::Record(_) | Output::Retired(_) | Output::Outcomes(_) | Output::Resumed(_) | Output::Stopped => {
                }
            }
        }
    }

    fn execute(&mut self, action: &Action) -> Done {
        match action {
            Action::Listen { socket, to, raise_cap } => {
                let cap = raise_cap.then(|| {
                    let before = self.somaxconn.insert(socket.netns, *to).unwrap();
                    Ok((before, *to))
                });
                Done::Listened { cap, namespace: Some(socket.netns), done: self.call(socket, *to) }
            }
            Action::Read { socket } => Done::Read(self.held(socket).map(|listener| listener.view.backlog.unwrap())),
            Action::PutBack { socket, set, original, cap } => {
                let is_set = self.held(socket).map(|listener| listener.view.backlog == *set);
                let done =
                    is_set.and_then(|is_set| if is_set { self.call(socket, *original).map(Some) } else { Ok(None) });
                let cap = cap.as_ref().and_then(|cap| {
                    let now = self.somaxconn.get_mut(&cap.netns)?;
                    (*now == cap.after).then(|| (std::mem::replace(now, cap.before), cap.before))
                });
                Done::PutBack { done, cap }
            }
        }
    }

    fn held(&mut self, socket: &Socket) -> Result<&mut Listener, Failure> {
        let failure = |reason: &str, is_holder_unknown| Failure { reason: reason.to_owned(), is_holder_unknown };
        let gone = || failure("the socket is gone: its owner closed it or ended", false);
        let listener = self.listeners.values_mut().find(|one| one.view.inode == socket.inode).ok_or_else(gone)?;
        if listener.is_denied {
            return Err(failure("duplicating a descriptor of process 7 is not permitted: no right", false));
        }
        if listener.view.pids.is_empty() {
            return Err(failure("no process holds it", true));
        }
        Ok(listener)
    }

    fn call(&mut self, socket: &Socket, to: u32) -> Result<Called, Failure> {
        let most = self.somaxconn.get(&socket.netns).copied().unwrap_or(u32::MAX);
        let view = &mut self.held(socket)?.view;
        let before = view.backlog.replace(to.min(most)).unwrap();
        Ok(Called { pid: view.pids[0], before, after: to.min(most) })
    }

    /// The next run of the daemon, with what this one kept.
    pub(crate) fn restart(&mut self) {
        self.tuner = Tuner::new(self.tuner.config().clone(), self.memory.clone(), Vec::new());
    }

    pub(crate) fn set_mode(&mut self, which: Selector, mode: TunerMode) {
        let modes = vec![ModeSetting { which: which.clone(), mode, started: None }];
        let (named, by) = ("all".to_owned(), "uid 0".to_owned());
        self.take(Input::ModesSet { modes, which, named, mode: Some(mode), by });
    }

    /// What was recorded since the last time: action, before, after.
    pub(crate) fn recorded(&mut self) -> Vec<(TunerAction, u32, u32)> {
        self.records().iter().map(|record| (record.action, record.before, record.after)).collect()
    }

    pub(crate) fn records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.outputs)
            .into_iter()
            .filter_map(|output| if let Output::Record(record) = output { Some(record) } else { None })
            .collect()
    }

    pub(crate) fn outcomes(&mut self) -> Vec<Outcome> {
        let all = std::mem::take(&mut self.outputs);
        all.into_iter().find_map(|it| if let Output::Outcomes(all) = it { Some(all) } else { None }).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<ListenerName> {
        self.tuner.listeners().map(governor_health::backlog::tuner::Entry::name).collect()
    }
}
