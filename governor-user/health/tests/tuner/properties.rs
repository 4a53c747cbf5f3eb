//! Whatever happens on a machine, in whatever order.

use crate::machine::{Listener, Machine, POLICY, config};
use governor_engine::time::Duration;
use governor_health::backlog::policy::Stance;
use governor_health::backlog::tuner::{Action, Input, Output};
use governor_health::backlog::{AtExit, ListenerPolicy, Selector, TunerConfig, TunerMode};
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Burst(u64, u32),
    Depth(u64, u32),
    Listen(u64, u32),
    Restarted(u64, u32),
    Hide(u64, bool),
    Close(u64),
    Open(u64),
    Deny(u64, bool),
    Unread(bool),
    Somaxconn(u32),
    Mode(TunerMode),
    Configure(TunerMode, u32, bool),
    Restore,
    Resume,
    Stop,
}

const LISTENERS: u64 = 5;

fn event() -> impl Strategy<Value = Event> {
    let which = || 1..=LISTENERS;
    let mode = || prop_oneof![Just(TunerMode::Off), Just(TunerMode::Observe), Just(TunerMode::Enforce)];
    prop_oneof![
        6 => prop_oneof![Just(1_u64), 1..30_u64, Just(90), Just(700)].prop_map(Event::Pass),
        8 => (which(), 1..6000_u32).prop_map(|(one, clients)| Event::Burst(one, clients)),
        2 => (which(), 0..3000_u32).prop_map(|(one, depth)| Event::Depth(one, depth)),
        3 => (which(), prop_oneof![Just(128_u32), 1..5000_u32]).prop_map(|(one, to)| Event::Listen(one, to)),
        1 => (which(), 10..20_u32).prop_map(|(one, pid)| Event::Restarted(one, pid)),
        2 => (which(), any::<bool>()).prop_map(|(one, hidden)| Event::Hide(one, hidden)),
        1 => which().prop_map(Event::Close),
        1 => which().prop_map(Event::Open),
        1 => (which(), any::<bool>()).prop_map(|(one, denied)| Event::Deny(one, denied)),
        1 => any::<bool>().prop_map(Event::Unread),
        1 => prop_oneof![Just(128_u32), Just(4096)].prop_map(Event::Somaxconn),
        1 => mode().prop_map(Event::Mode),
        1 => (mode(), 1..20_u32, any::<bool>()).prop_map(|(mode, mib, raise)| Event::Configure(mode, mib, raise)),
        1 => Just(Event::Restore),
        1 => Just(Event::Resume),
        1 => Just(Event::Stop),
    ]
}

fn machine() -> Machine {
    let mut machine = Machine::new(config());
    for cookie in 1..=LISTENERS {
        open(&mut machine, cookie);
    }
    machine.tick();
    machine
}

/// The first three are a group.
fn open(machine: &mut Machine, cookie: u64) {
    machine.open(cookie, if cookie <= 3 { 80 } else { 81 }, 128, 7);
}

fn happen(machine: &mut Machine, event: &Event) {
    let by = || "uid 0".to_owned();
    match *event {
        Event::Pass(ticks) => (0..ticks).for_each(|_| machine.tick()),
        Event::Burst(one, clients) => {
            if machine.listeners.contains_key(&one) {
                machine.burst(one, clients);
            }
        }
        Event::Open(one) => {
            if !machine.listeners.contains_key(&one) {
                open(machine, one);
            }
        }
        Event::Close(one) => drop(machine.listeners.remove(&one)),
        Event::Unread(is_unread) => machine.unread = if is_unread { vec![1] } else { Vec::new() },
        Event::Somaxconn(most) => drop(machine.somaxconn.insert(1, most)),
        Event::Mode(mode) => {
            let port = governor_health::backlog::ListenerPattern::parse(":80");
            machine.set_mode(Selector { place: port, ..Selector::default() }, mode);
        }
        Event::Configure(mode, memory_mib, raise_somaxconn) => {
            let global = ListenerPolicy { mode, quiet: Duration::from_secs(20), ..POLICY };
            let at_exit = AtExit::Restore;
            let config = TunerConfig { global, memory_mib, raise_somaxconn, at_exit, ..config() };
            machine.take(Input::Configured(Box::new(config)));
        }
        Event::Restore => machine.take(Input::Restore { which: Selector::default(), by: by() }),
        Event::Resume => machine.take(Input::Resume { which: Selector::default(), by: by() }),
        Event::Stop => machine.take(Input::Stop),
        Event::Depth(one, depth) => change(machine, one, |listener| listener.view.depth = depth),
        Event::Listen(one, to) => change(machine, one, |listener| listener.view.backlog = Some(to)),
        Event::Hide(one, is_hidden) => change(machine, one, |listener| listener.is_hidden = is_hidden),
        Event::Deny(one, is_denied) => change(machine, one, |listener| listener.is_denied = is_denied),
        Event::Restarted(one, pid) => {
            change(machine, one, |listener| listener.view.pids = vec![pid]);
            machine.started.insert(pid, u64::from(pid) + machine.now.0);
        }
    }
}

fn change(machine: &mut Machine, cookie: u64, how: impl FnOnce(&mut Listener)) {
    machine.listeners.get_mut(&cookie).map(how).unwrap_or_default();
}

/// What the tuner knows before an event, to judge what it does in it.
fn check(machine: &mut Machine, event: &Event) -> Result<(), TestCaseError> {
    let budget = machine.tuner.config().memory_mib * 1024 / 16;
    let by_itself = matches!(event, Event::Pass(_) | Event::Burst(..));
    let stood_down: Vec<u64> = stood_down(machine);
    let before = machine.tuner.reserved();
    happen(machine, event);
    let max = machine.tuner.config().global.max;
    for output in &machine.outputs {
        let Output::Act(action) = output else { continue };
        let (Action::Listen { socket, .. } | Action::Read { socket } | Action::PutBack { socket, .. }) = action;
        let Some(cookie) = socket.cookie else { continue };
        prop_assert!(!by_itself || !stood_down.contains(&cookie), "{action:?} of one that is left alone");
        let entry = machine.tuner.listeners().find(|entry| entry.name().cookie == cookie);
        if let (Action::Listen { to, .. }, Some(entry)) = (action, entry) {
            let (original, _) = entry.backlogs();
            prop_assert!(*to >= original, "{action:?} below the {original} of its owner");
            prop_assert!(*to <= max.max(original), "{action:?} above the most");
        }
        if matches!(action, Action::Listen { .. }) && by_itself {
            let mode =
                machine.tuner.listeners().find(|entry| entry.name().cookie == cookie).map(|entry| entry.mode().0);
            prop_assert!(mode.is_none_or(|mode| mode == TunerMode::Enforce), "{action:?} in mode {mode:?}");
        }
    }
    if by_itself {
        // A budget that was lowered takes nothing back.
        let reserved = machine.tuner.reserved();
        prop_assert!(reserved <= budget.max(before), "{reserved} connections more, {budget} at most, {before} before");
    }
    machine.outputs.clear();
    Ok(())
}

fn stood_down(machine: &Machine) -> Vec<u64> {
    let left = machine.tuner.listeners().filter(|entry| entry.stance().0 == Stance::StoodDown);
    left.map(|entry| entry.name().cookie).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn owners_operators_and_bounds_are_respected(events in prop::collection::vec(event(), 1..60)) {
        let mut machine = machine();
        for event in &events {
            check(&mut machine, event)?;
        }
    }

    /// The other machine's rows differ in every observation in something that means nothing, so that each one is looked at.
    #[test]
    fn rows_that_are_not_looked_at_would_have_changed_nothing(events in prop::collection::vec(event(), 1..60)) {
        let (mut skipping, mut looking) = (machine(), machine());
        looking.toggles = true;
        for event in &events {
            happen(&mut skipping, event);
            happen(&mut looking, event);
            prop_assert_eq!(&skipping.outputs, &looking.outputs);
            prop_assert_eq!(skipping.tuner.figures(), looking.tuner.figures());
            let plans = |machine: &Machine| -> Vec<_> {
                machine.tuner.listeners().map(|it| (it.name(), it.plan().clone(), it.backlogs(), it.stance().1)).collect()
            };
            prop_assert_eq!(plans(&skipping), plans(&looking));
            skipping.outputs.clear();
            looking.outputs.clear();
        }
    }
}
