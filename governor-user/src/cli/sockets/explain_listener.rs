//! `governorctl explain listener`: the diagnosis of a listener, in words and in numbers.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Facts, Style, duration, printable, wrapped};
use governor_api::{Conntrack, Evidence, ListenerVerdict, Verdict};
use governor_observation::wording::counted;
use std::net::SocketAddr;

/// Asks and shows. A place without a listener is an error of the daemon.
pub(in crate::cli) fn run(ctl: &Ctl, place: &str) -> Result<Answer, Error> {
    let rows: Vec<ListenerVerdict> =
        ctl.client.get(&with_query("/v1/verdicts", &[("listener", Some(place.to_owned()))]))?;
    Ok(ctl.show(&rows, |rows, style| rows.iter().map(|row| text(row, *style)).collect::<Vec<_>>().join("\n")))
}

fn text(row: &ListenerVerdict, style: Style) -> String {
    let place = SocketAddr::new(row.address, row.port);
    let paint = match (row.verdict.is_trouble(), row.verdict == Verdict::Ok) {
        (true, _) => Style::red,
        (false, true) => Style::green,
        (false, false) => Style::yellow,
    };
    let word = paint(style, row.verdict.as_str());
    let evidence = &row.evidence;
    let mut facts = Facts::default();
    queue(&mut facts, evidence);
    window(&mut facts, evidence);
    surroundings(&mut facts, row);
    let line = |text: &str| wrapped(text, 0, style.width());
    format!(
        "{}{}{}\n{}",
        line(&format!("{place} in network namespace {}: {word}", row.netns)),
        line(&format!("{}.", capital(&row.sentence))),
        line(&row.remedy),
        facts.text(style)
    )
}

fn queue(facts: &mut Facts, evidence: &Evidence) {
    let mut now = match evidence.backlog {
        Some(backlog) => {
            let holds = counted(u64::from(backlog) + 1, "connection", "connections");
            format!("{} of at most {holds}", evidence.depth)
        }
        None => format!("{}, limit unknown", counted(evidence.depth, "connection", "connections")),
    };
    if let Some(oldest) = evidence.oldest_seconds {
        now.push_str(&format!(", the oldest for {}", duration(oldest)));
    }
    if let Some(gone) = evidence.abandoned.filter(|gone| *gone > 0) {
        now.push_str(&format!("; {gone} given up by their clients"));
    }
    facts.add("queue", now);
    if let Some(most) = evidence.somaxconn {
        facts.add("somaxconn", format!("{most} in its namespace"));
    }
    if evidence.depth > 0 {
        facts.add("not empty", format!("for {}", duration(evidence.waiting_seconds)));
        facts.add(
            "accepts",
            evidence
                .no_accept_seconds
                .map_or_else(|| "not seen".to_owned(), |idle| format!("none for {}", duration(idle))),
        );
    }
    if let Some(wait) = evidence.standing_seconds {
        let lasts = duration(evidence.standing_for_seconds);
        facts.add("stands", format!("for {lasts}: everybody waits {} or longer", duration(wait)));
    }
}

fn window(facts: &mut Facts, evidence: &Evidence) {
    let count = |count: Option<u64>| count.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
    let attempts = match evidence.overflows {
        Some(attempts) => counted(attempts, "attempt", "attempts").to_string(),
        None => "unknown attempts".to_owned(),
    };
    facts.add(
        "last 10 s",
        format!(
            "{} came in, {} accepted, {attempts} refused; at most {} waited, through {} at most",
            count(evidence.enqueued),
            count(evidence.accepted),
            evidence.depth_max,
            duration(evidence.longest_wait_seconds),
        ),
    );
    if let Some(rate) = evidence.accept_rate {
        facts.add("accept rate", format!("{rate:.0} a second while connections waited"));
    }
    if let Some(took) = evidence.drained_seconds {
        facts.add("emptied", format!("within {}", duration(took)));
    }
}

fn surroundings(facts: &mut Facts, row: &ListenerVerdict) {
    let evidence = &row.evidence;
    let of = &evidence.namespace;
    if let (Some(sent), Some(came)) = (of.syncookies_sent, of.syncookies_received) {
        let refused = of.request_queue_full_drops.unwrap_or(0);
        facts.add(
            "half-open",
            format!(
                "{} sent, {came} came back, {} refused, in its namespace",
                counted(sent, "SYN cookie", "SYN cookies"),
                counted(refused, "SYN", "SYNs")
            ),
        );
    }
    match evidence.conntrack {
        Conntrack::Table { count, max } => facts.add("tracking", format!("{count} of at most {max} connections")),
        Conntrack::Unknown => facts.add("tracking", "unknown".to_owned()),
        Conntrack::Absent => {}
    }
    if let Some(found) = evidence.descriptors {
        facts.add("descriptors", format!("process {}: {} of at most {}", found.pid, found.open, found.limit));
    }
    if let Some(work) = &evidence.work {
        let cap = if work.cap == 0 { "no cap".to_owned() } else { format!("cap {}", work.cap) };
        let mut text = format!("{} counted, {cap}", work.counted);
        if let Some(pool) = &work.pool {
            text.push_str(&format!(
                "; {}: {} of {} slots, {} parked",
                pool.name, pool.in_flight, pool.capacity, pool.parked
            ));
            if let Some(service) = pool.service_seconds {
                text.push_str(&format!(", each held for {}", duration(service)));
            }
            if let Some(usual) = pool.usual_seconds {
                text.push_str(&format!(" (usually {})", duration(usual)));
            }
        }
        facts.add("requests", text);
    }
    if !row.pids.is_empty() {
        let pids: Vec<String> = row.pids.iter().map(u32::to_string).collect();
        facts.add("held by", format!("process {}", pids.join(", ")));
    } else if let Some(why) = &row.pids_unknown {
        facts.add("held by", format!("unknown: {}; its backlog is not tuned", printable(why)));
    }
    facts.add(
        "level",
        if row.watched { "it feeds the overload level" } else { "it does not feed the overload level" }.to_owned(),
    );
}

fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{Descriptors, NamespaceCounters, PoolWork, Work};

    fn row(verdict: Verdict, evidence: Evidence) -> ListenerVerdict {
        ListenerVerdict {
            netns: 4_026_531_840,
            address: "0.0.0.0".parse().unwrap(),
            port: 443,
            cookie: Some(7),
            pids: vec![71, 72],
            pids_unknown: None,
            watched: true,
            verdict,
            sentence: verdict.sentence(&evidence),
            remedy: verdict.remedy(&evidence).to_owned(),
            evidence,
        }
    }

    #[test]
    fn a_starved_queue_is_told_in_words_and_numbers() {
        let evidence = Evidence {
            depth: 129,
            backlog: Some(128),
            somaxconn: Some(4096),
            abandoned: Some(3),
            window_seconds: 10.0,
            depth_max: 129,
            enqueued: Some(1000),
            accepted: Some(1000),
            overflows: Some(4000),
            overflow_rate: Some(400.0),
            accept_rate: Some(100.0),
            waiting_seconds: 8.0,
            longest_wait_seconds: 8.0,
            no_accept_seconds: Some(0.0),
            oldest_seconds: Some(1.28),
            standing_seconds: Some(1.2),
            standing_for_seconds: 7.0,
            namespace: NamespaceCounters {
                syncookies_sent: Some(0),
                syncookies_received: Some(0),
                request_queue_full_drops: Some(0),
                ..NamespaceCounters::default()
            },
            conntrack: Conntrack::Table { count: 12, max: 262_144 },
            descriptors: Some(Descriptors { pid: 71, open: 140, limit: 1024 }),
            work: Some(Work {
                node_full_seconds: 0.0,
                counted: 40,
                cap: 1000,
                saturated_seconds: 0.0,
                pool: Some(PoolWork {
                    name: "chat".into(),
                    capacity: 98,
                    in_flight: 40,
                    service_seconds: Some(2.0),
                    usual_seconds: Some(1.8),
                    ..PoolWork::default()
                }),
            }),
            ..Evidence::default()
        };
        insta::assert_snapshot!(text(&row(Verdict::AcceptStarved, evidence), Style::PLAIN), @"
        0.0.0.0:443 in network namespace 4026531840: accept_starved
        129 of at most 129 connections wait, everybody for 1.2 s or longer; 100 a second are accepted, 100 came in; 4000 attempts were refused in the last 10 s (packets, not clients).
        Accept faster: more acceptors, or less work between two accepts; a longer backlog only adds waiting.

        queue        129 of at most 129 connections, the oldest for 1.3s; 3 given up by their clients
        somaxconn    4096 in its namespace
        not empty    for 8s
        accepts      none for 0s
        stands       for 7s: everybody waits 1.2s or longer
        last 10 s    1000 came in, 1000 accepted, 4000 attempts refused; at most 129 waited, through 8s at most
        accept rate  100 a second while connections waited
        half-open    0 SYN cookies sent, 0 came back, 0 SYNs refused, in its namespace
        tracking     12 of at most 262144 connections
        descriptors  process 71: 140 of at most 1024
        requests     40 counted, cap 1000; chat: 40 of 98 slots, 0 parked, each held for 2s (usually 1.8s)
        held by      process 71, 72
        level        it feeds the overload level
        ");
    }

    #[test]
    fn what_is_unknown_is_said_to_be() {
        let evidence = Evidence { depth: 5, ..Evidence::default() };
        insta::assert_snapshot!(text(&row(Verdict::Ok, evidence), Style::PLAIN), @"
        0.0.0.0:443 in network namespace 4026531840: ok
        5 connections wait in the accept queue.
        Nothing to do.

        queue      5 connections, limit unknown
        not empty  for 0s
        accepts    not seen
        last 10 s  unknown came in, unknown accepted, unknown attempts refused; at most 0 waited, through 0s at most
        tracking   unknown
        held by    process 71, 72
        level      it feeds the overload level
        ");
    }
}
