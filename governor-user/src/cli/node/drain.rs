//! `governorctl drain`: new requests are refused and what runs ends; with `--wait`, until nothing is left.

use crate::cli::admission::leases;
use crate::cli::answer::{Answer, Error, Exit};
use crate::cli::run::Ctl;
use crate::cli::text::ids;
use crate::cli::text::render::{duration, key_name, printable};
use governor_api::{Drain, DrainRequest, Lease};
use governor_observation::wording::counted;
use hyper::Method;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two questions for what is left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The wait prints what is left when that changes, at most this often.
const SHOW_EVERY: Duration = Duration::from_secs(5);

/// Leases that a line of progress names.
const MOST_NAMED: usize = 3;

/// Begins the drain, and waits for its end if asked to.
pub(in crate::cli) fn run(ctl: &Ctl, wait: bool, reason: Option<String>) -> Result<Answer, Error> {
    let drain: Drain = ctl.client.send(Method::POST, "/v1/drain", &DrainRequest { on: true, reason })?;
    if wait {
        return wait_for(ctl, drain);
    }
    Ok(ctl.show(&drain, |drain, style| {
        let mut text = format!("draining: {}; end it with governorctl drain --undo\n", left(drain));
        if !drain.longest.is_empty() {
            text.push_str("\nthe longest:\n");
            text.push_str(&leases::table(&drain.longest, *style));
        }
        text
    }))
}

/// Ends the drain.
pub(in crate::cli) fn undo(ctl: &Ctl) -> Result<Answer, Error> {
    let drain: Drain = ctl.client.send(Method::POST, "/v1/drain", &DrainRequest { on: false, reason: None })?;
    Ok(ctl.show(&drain, |_, _| "not draining: requests are granted again\n".to_owned()))
}

fn wait_for(ctl: &Ctl, mut drain: Drain) -> Result<Answer, Error> {
    let began = Instant::now();
    let mut shown: Option<(u32, Instant)> = None;
    while drain.on && drain.leases > 0 {
        let is_due = |(leases, at): (u32, Instant)| leases != drain.leases && at.elapsed() >= SHOW_EVERY;
        if shown.is_none_or(is_due) {
            shown = Some((drain.leases, Instant::now()));
            // A reader that has gone is no error.
            drop(writeln!(io::stderr(), "{}", progress(&drain)));
        }
        thread::sleep(LOOK_EVERY);
        drain = ctl.client.get("/v1/drain")?;
    }
    let took = duration(began.elapsed().as_secs_f64());
    let exit = if drain.on { Exit::Ok } else { Exit::Negative };
    let answer = ctl.show(&drain, |drain, _| {
        if drain.on {
            format!("drained: no lease is left after {took}; end the drain with governorctl drain --undo\n")
        } else {
            format!("the drain was ended by another order after {took}; {}\n", left(drain))
        }
    });
    Ok(Answer { exit, ..answer })
}

/// The drain in words, for `status`.
pub(in crate::cli) fn state(drain: &Drain) -> String {
    let since = drain.since_seconds.map(|since| format!(" for {}", duration(since))).unwrap_or_default();
    let by = drain.by.as_deref().map(|by| format!(" by {}", printable(by))).unwrap_or_default();
    let why = drain.reason.as_deref().map(|why| format!(" ({})", printable(why))).unwrap_or_default();
    format!("on{since}{by}{why}: new requests are refused, {}; governorctl drain --undo ends it", left(drain))
}

fn left(drain: &Drain) -> String {
    let leases = counted(drain.leases, "lease is left", "leases are left");
    if drain.suspended > 0 { format!("{leases}, {} of them suspended", drain.suspended) } else { leases.to_string() }
}

fn progress(drain: &Drain) -> String {
    let name = |lease: &Lease| {
        let who = key_name(lease.key.as_deref(), lease.label.as_deref());
        format!(
            "{} of {who} in pool {}, {}",
            ids::lease(&lease.lease),
            printable(&lease.pool),
            duration(lease.age_seconds)
        )
    };
    let longest: Vec<String> = drain.longest.iter().take(MOST_NAMED).map(name).collect();
    format!("{}; the longest: {}", left(drain), longest.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_counted_and_the_longest_are_named() {
        let lease = |lease: &str, label: &str, age_seconds| Lease {
            lease: lease.into(),
            pool: "chat".into(),
            key: Some("e37f28ee0e42aa00aa00aa00aa00aa00".into()),
            label: Some(label.into()),
            age_seconds,
            ..Lease::default()
        };
        let drain = Drain {
            on: true,
            since_seconds: Some(90.0),
            by: Some("uid 0".into()),
            reason: Some("new kernel".into()),
            leases: 4,
            suspended: 1,
            longest: vec![lease("0001000000000004", "batch", 310.0), lease("0001000000000009", "user", 4.2)],
        };
        assert_eq!(
            progress(&drain),
            "4 leases are left, 1 of them suspended; the longest: l-0001000000000004 of \
             e37f28ee0e42… \"batch\" in pool chat, 5m10s; l-0001000000000009 of e37f28ee0e42… \"user\" in pool chat, 4.2s"
        );
        assert_eq!(
            state(&drain),
            "on for 1m30s by uid 0 (new kernel): new requests are refused, 4 leases are left, 1 of them suspended; \
             governorctl drain --undo ends it"
        );
    }
}
