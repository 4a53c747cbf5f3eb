//! `governorctl tune`: which backlogs are raised or left alone, what was done and why, what would be done, and orders for
//! single listeners.

use crate::cli::answer::{Answer, Error};
use crate::cli::args::{TuneOrder, Which};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Cell, Column, Facts, Style, Table, or_dash, printable};
use governor_api::{
    TunedListener, Tuner, TunerAction, TunerOrdered, TunerOutcome, TunerRecord, TunerResume, TunerResumed, TunerSet,
    TunerSetting, TunerState, TunerWhich,
};
use governor_observation::wording::counted;
use hyper::Method;
use serde::Serialize;

/// Both answers, as JSON shows them.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    tuner: Tuner,
    journal: Vec<TunerRecord>,
}

/// Shows the listeners with something to say and the journal.
pub(in crate::cli) fn run(ctl: &Ctl, last_seconds: u64) -> Result<Answer, Error> {
    let tuner: Tuner = ctl.client.get("/v1/tuner")?;
    let journal: Vec<TunerRecord> =
        ctl.client.get(&with_query("/v1/tuner/journal", &[("last_seconds", Some(last_seconds.to_string()))]))?;
    Ok(ctl.show(&Shown { tuner, journal }, |shown, style| {
        format!(
            "{}\n{}\n{}",
            summary(&shown.tuner, *style),
            listeners(&shown.tuner, *style),
            records(&shown.journal, *style)
        )
    }))
}

/// Shows what would be done about each listener.
pub(in crate::cli) fn dry_run(ctl: &Ctl) -> Result<Answer, Error> {
    let tuner: Tuner = ctl.client.get("/v1/tuner")?;
    Ok(ctl.show(&tuner, |tuner, style| format!("{}\n{}", summary(tuner, *style), plans(tuner, *style))))
}

/// Orders something for single listeners.
pub(in crate::cli) fn order(ctl: &Ctl, order: TuneOrder) -> Result<Answer, Error> {
    match order {
        TuneOrder::Enforce(which) => set_mode(ctl, which, "enforce"),
        TuneOrder::Observe(which) => set_mode(ctl, which, "observe"),
        TuneOrder::Clear(which) => {
            let which = TunerWhich::from(which);
            let done: TunerOrdered = ctl.client.send(Method::POST, "/v1/tuner/clear", &which)?;
            Ok(ctl.show(&done, |done, style| {
                let cleared = format!("the configuration holds again for {which}\n");
                format!("{cleared}{}{}", modes(done), warning(done, *style))
            }))
        }
        TuneOrder::Restore(which) => {
            let done: TunerOrdered = ctl.client.send(Method::POST, "/v1/tuner/restore", &TunerWhich::from(which))?;
            Ok(ctl.show(&done, |done, style| restored(done, *style)))
        }
        TuneOrder::Resume(which) => {
            let Which { listener, netns, cgroup, pid } = which;
            let request = TunerResume { listener, netns, cgroup, pid };
            let resumed: TunerResumed = ctl.client.send(Method::POST, "/v1/tuner/resume", &request)?;
            Ok(ctl.show(&resumed, |resumed, _| {
                if resumed.listeners.is_empty() {
                    return "no listener was left alone\n".to_owned();
                }
                resumed.listeners.iter().map(|name| format!("{name} is tuned again\n")).collect()
            }))
        }
    }
}

fn set_mode(ctl: &Ctl, which: Which, mode: &str) -> Result<Answer, Error> {
    let order = TunerSet { which: which.into(), mode: mode.to_owned() };
    let done: TunerOrdered = ctl.client.send(Method::POST, "/v1/tuner/mode", &order)?;
    Ok(ctl.show(&done, |done, style| {
        let before = done.before.as_ref().map_or_else(String::new, |before| format!(" (was {})", before.mode));
        format!("{mode} is set for {}{before}\n{}{}", order.which, modes(done), warning(done, *style))
    }))
}

/// The mode and backlog of each present listener, and what prevents tuning.
fn modes(done: &TunerOrdered) -> String {
    if let Some(why) = &done.unavailable {
        return format!("no backlog is tuned now: {}\n", printable(why));
    }
    if done.listeners.is_empty() {
        return "no present listener matches\n".to_owned();
    }
    let line = |one: &TunerOutcome| {
        let obstacle = one.failure.as_ref().map(|why| format!("; it cannot be tuned: {}", printable(why)));
        format!(
            "{} in network namespace {}: mode {}, backlog {}{}\n",
            one.listener,
            one.listener.netns,
            one.mode,
            one.after,
            obstacle.unwrap_or_default()
        )
    };
    done.listeners.iter().map(line).collect()
}

fn restored(done: &TunerOrdered, style: Style) -> String {
    let line = |one: &TunerOutcome| {
        let what = match &one.failure {
            Some(why) => style.red(&format!("not restored: {}", printable(why))),
            None if one.before == one.after => format!("backlog {} as its owner asked; left alone now", one.after),
            None => format!("backlog {} instead of {}, as its owner asked; left alone now", one.after, one.before),
        };
        format!("{} in network namespace {}: {what}\n", one.listener, one.listener.netns)
    };
    done.listeners.iter().map(line).collect()
}

fn warning(done: &TunerOrdered, style: Style) -> String {
    let warning = done.warning.as_ref().map(|why| format!("{}\n", style.yellow(&printable(why))));
    warning.unwrap_or_default()
}

impl From<Which> for TunerWhich {
    fn from(which: Which) -> Self {
        let Which { listener, netns, cgroup, pid } = which;
        Self { listener, netns, cgroup, pid }
    }
}

fn summary(tuner: &Tuner, style: Style) -> String {
    let mut facts = Facts::default();
    facts.add("mode", format!("{}, at exit {}", tuner.mode, tuner.at_exit));
    facts.add("listeners", tuner.listeners.len().to_string());
    if let Some(unknown) = &tuner.holders_unknown {
        let many = counted(unknown.listeners, "listener cannot be tuned", "listeners cannot be tuned");
        facts.add("holders", format!("{many}, no process is seen that holds it: {}", printable(&unknown.reason)));
    }
    for setting in &tuner.settings {
        let TunerSetting { which, mode, set_by, set_at } = setting;
        facts.add("set", printable(&format!("{mode} for {which}, by {set_by}, {set_at}")));
    }
    if let Some(why) = &tuner.unavailable {
        facts.add("note", why.clone());
    }
    facts.text(style)
}

/// Those that are not simply as their owner wants them.
pub(in crate::cli) fn listeners(tuner: &Tuner, style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("LISTENER").rank(0),
        Column::word("NETNS").rank(4),
        Column::word("MODE").rank(2),
        Column::word("STATE").rank(0),
        Column::number("ORIGINAL").rank(1),
        Column::number("BACKLOG").rank(1),
        Column::number("SOMAXCONN").rank(3),
    ]);
    for one in tuner.listeners.iter().filter(|one| one.state != TunerState::Untouched) {
        let state = match one.state {
            TunerState::StoodDown => Cell::yellow(one.state.as_str()),
            TunerState::Untouched | TunerState::Raised | TunerState::Reverted => one.state.as_str().to_owned().into(),
        };
        table.row([
            one.listener.to_string().into(),
            one.listener.netns.to_string().into(),
            one.mode.clone().into(),
            state,
            one.original.to_string().into(),
            one.backlog.to_string().into(),
            or_dash(one.somaxconn).into(),
        ]);
    }
    table.text(style, "every backlog is as its owner asked")
}

pub(in crate::cli) fn plans(tuner: &Tuner, style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("LISTENER").rank(0),
        Column::word("NETNS").rank(5),
        Column::word("MODE").rank(4),
        Column::number("BACKLOG").rank(2),
        Column::number("WOULD BE").rank(0),
        Column::word("LIMIT").rank(3),
        Column::text("WHY").rank(1).least(20),
    ]);
    for TunedListener { listener, mode, backlog, plan, obstacle, .. } in &tuner.listeners {
        let why = match obstacle {
            Some(obstacle) => obstacle,
            None if plan.reason.is_empty() => "no burst has asked for more room",
            None => &plan.reason,
        };
        table.row([
            listener.to_string(),
            listener.netns.to_string(),
            mode.clone(),
            backlog.to_string(),
            or_dash(plan.to),
            or_dash(plan.limit.clone()),
            printable(why),
        ]);
    }
    table.text(style, "there is no listener to tune")
}

pub(in crate::cli) fn records(journal: &[TunerRecord], style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("WHEN").rank(0),
        Column::word("LISTENER").rank(0),
        Column::word("WHAT").rank(0),
        Column::number("BEFORE").rank(2),
        Column::number("AFTER").rank(2),
        Column::word("LIMIT").rank(4),
        Column::text("BY").rank(3),
        Column::text("WHY").rank(1).least(16),
    ]);
    for record in journal {
        let what = match record.action {
            TunerAction::Failed => Cell::red(record.action.as_str()),
            TunerAction::Clamped | TunerAction::StandDown => Cell::yellow(record.action.as_str()),
            TunerAction::WouldRaise
            | TunerAction::Raise
            | TunerAction::Lower
            | TunerAction::Reverted
            | TunerAction::Reapply
            | TunerAction::Resume
            | TunerAction::SetMode
            | TunerAction::Restore
            | TunerAction::Somaxconn => record.action.as_str().to_owned().into(),
        };
        table.row([
            record.at.clone().into(),
            record.listener.to_string().into(),
            what,
            record.before.to_string().into(),
            record.after.to_string().into(),
            or_dash(record.limit.clone()).into(),
            printable(&record.by).into(),
            printable(&record.reason).into(),
        ]);
    }
    table.text(style, "nothing was done in that time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{HoldersUnknown, ListenerName, TunerPlan};

    fn name() -> ListenerName {
        ListenerName { netns: 4_026_531_840, address: "0.0.0.0".parse().unwrap(), port: 443, cookie: 7 }
    }

    fn tuner() -> Tuner {
        let listener = |state: TunerState, port: u16, backlog: u32, plan: TunerPlan| TunedListener {
            listener: ListenerName { port, ..name() },
            mode: "enforce".into(),
            state,
            original: 5,
            backlog,
            somaxconn: Some(4096),
            mode_set: false,
            obstacle: None,
            plan,
        };
        let plan = TunerPlan {
            to: Some(155),
            wanted: Some(1024),
            limit: Some("rate".into()),
            reason: "6 waited, 12 attempts were refused, 31 were accepted in 100 ms (310/s)".into(),
        };
        Tuner {
            mode: "observe".into(),
            at_exit: "keep".into(),
            unavailable: None,
            holders_unknown: None,
            settings: Vec::new(),
            listeners: vec![
                listener(TunerState::Untouched, 80, 5, TunerPlan::default()),
                listener(TunerState::Untouched, 443, 5, plan),
                listener(TunerState::Raised, 8080, 1024, TunerPlan::default()),
                listener(TunerState::StoodDown, 8443, 64, TunerPlan::default()),
            ],
        }
    }

    #[test]
    fn only_listeners_that_are_not_as_their_owner_wants_are_listed() {
        insta::assert_snapshot!(format!("{}{}", summary(&tuner(), Style::PLAIN), listeners(&tuner(), Style::PLAIN)), @"
        mode       observe, at exit keep
        listeners  4
        LISTENER      NETNS       MODE     STATE       ORIGINAL  BACKLOG  SOMAXCONN
        0.0.0.0:8080  4026531840  enforce  raised             5     1024       4096
        0.0.0.0:8443  4026531840  enforce  stood_down         5       64       4096
        ");
    }

    #[test]
    fn a_dry_run_says_what_would_be_done_about_each_and_why() {
        insta::assert_snapshot!(plans(&tuner(), Style::PLAIN), @"
        LISTENER      NETNS       MODE     BACKLOG  WOULD BE  LIMIT  WHY
        0.0.0.0:80    4026531840  enforce        5         -  -      no burst has asked for more room
        0.0.0.0:443   4026531840  enforce        5       155  rate   6 waited, 12 attempts were refused, 31 were accepted in 100 ms (310/s)
        0.0.0.0:8080  4026531840  enforce     1024         -  -      no burst has asked for more room
        0.0.0.0:8443  4026531840  enforce       64         -  -      no burst has asked for more room
        ");
    }

    #[test]
    fn the_journal_has_before_and_after_of_each_action() {
        let record = |action: TunerAction, before: u32, after: u32, limit: Option<&str>| TunerRecord {
            at: "2026-03-01T12:00:00Z".into(),
            at_seconds: 1_772_366_400,
            listener: name(),
            action,
            by: "governord".into(),
            before,
            after,
            wanted: Some(1024),
            limit: limit.map(str::to_owned),
            pid: Some(71),
            reason: "why".into(),
        };
        let journal = [record(TunerAction::Raise, 5, 155, Some("rate")), record(TunerAction::StandDown, 155, 64, None)];
        insta::assert_snapshot!(records(&journal, Style::PLAIN), @"
        WHEN                  LISTENER     WHAT        BEFORE  AFTER  LIMIT  BY         WHY
        2026-03-01T12:00:00Z  0.0.0.0:443  raise            5    155  rate   governord  why
        2026-03-01T12:00:00Z  0.0.0.0:443  stand_down     155     64  -      governord  why
        ");
    }

    fn ordered() -> TunerOrdered {
        let outcome = |before, after, failure: Option<&str>| TunerOutcome {
            listener: name(),
            mode: "enforce".into(),
            before,
            after,
            failure: failure.map(str::to_owned),
        };
        TunerOrdered {
            listeners: vec![outcome(1024, 5, None), outcome(5, 5, None), outcome(64, 64, Some("it is gone"))],
            ..TunerOrdered::default()
        }
    }

    #[test]
    fn what_became_of_each_listener_is_told() {
        insta::assert_snapshot!(restored(&ordered(), Style::PLAIN), @"
        0.0.0.0:443 in network namespace 4026531840: backlog 5 instead of 1024, as its owner asked; left alone now
        0.0.0.0:443 in network namespace 4026531840: backlog 5 as its owner asked; left alone now
        0.0.0.0:443 in network namespace 4026531840: not restored: it is gone
        ");
        insta::assert_snapshot!(modes(&ordered()), @"
        0.0.0.0:443 in network namespace 4026531840: mode enforce, backlog 5
        0.0.0.0:443 in network namespace 4026531840: mode enforce, backlog 5
        0.0.0.0:443 in network namespace 4026531840: mode enforce, backlog 64; it cannot be tuned: it is gone
        ");
        assert_eq!(modes(&TunerOrdered::default()), "no present listener matches\n");
        let unavailable = TunerOrdered { unavailable: Some("tier procfs".into()), ..ordered() };
        assert_eq!(modes(&unavailable), "no backlog is tuned now: tier procfs\n");
    }

    #[test]
    fn settings_and_listeners_that_cannot_be_tuned_are_named() {
        let which =
            TunerWhich { listener: Some(":443".into()), cgroup: Some("/proxies".into()), ..TunerWhich::default() };
        let set = TunerSetting {
            which,
            mode: "enforce".into(),
            set_by: "uid 0".into(),
            set_at: "2026-03-01T12:00:00Z".into(),
        };
        let reason = "2 processes cannot be read (missing CAP_SYS_PTRACE)".to_owned();
        let shown =
            Tuner { holders_unknown: Some(HoldersUnknown { listeners: 1, reason }), settings: vec![set], ..tuner() };
        insta::assert_snapshot!(summary(&shown, Style::PLAIN), @"
        mode       observe, at exit keep
        listeners  4
        holders    1 listener cannot be tuned, no process is seen that holds it: 2 processes cannot be read (missing CAP_SYS_PTRACE)
        set        enforce for :443 of cgroup /proxies, by uid 0, 2026-03-01T12:00:00Z
        ");
    }
}
