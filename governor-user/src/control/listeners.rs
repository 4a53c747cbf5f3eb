//! `GET /v1/listeners`: the last observation joined with the last report and the names of processes. Reads `/proc`: not
//! on the daemon's loop.

use governor_api::{ListenerRow, ListenerView, Verdict};
use governor_health::Report;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Processes whose name is read for one answer; listeners of others have none.
const MOST_NAMES: usize = 4096;

/// What makes a listener the same in an observation and in a report.
type Place = (u64, IpAddr, u16, Option<u64>);

/// Every listener with its diagnosis and process.
#[must_use]
pub(super) fn rows(listeners: &[ListenerView], report: &Report) -> Vec<ListenerRow> {
    joined(listeners, report, process_name)
}

fn joined(
    listeners: &[ListenerView],
    report: &Report,
    mut name: impl FnMut(u32) -> Option<String>,
) -> Vec<ListenerRow> {
    let judged: BTreeMap<Place, Verdict> =
        report.listeners.iter().map(|row| ((row.netns, row.address, row.port, row.cookie), row.verdict)).collect();
    let mut names: BTreeMap<u32, Option<String>> = BTreeMap::new();
    let mut row = |listener: &ListenerView| {
        let first = listener.pids.iter().min().copied();
        let process = first.and_then(|pid| {
            if names.len() >= MOST_NAMES && !names.contains_key(&pid) {
                return None;
            }
            names.entry(pid).or_insert_with(|| name(pid)).clone()
        });
        let place = (listener.netns, listener.address, listener.port, listener.cookie);
        ListenerRow { listener: listener.clone(), verdict: judged.get(&place).copied(), process }
    };
    listeners.iter().map(&mut row).collect()
}

/// The name a process gave itself: at most 15 bytes of anything.
fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_health::Evidence;
    use governor_health::Judged;
    use std::sync::Arc;

    #[test]
    fn each_listener_has_its_own_verdict_and_the_name_of_its_first_process() {
        let listener = |port, pids: Vec<u32>| ListenerView { pids, ..ListenerView::bare(port) };
        let listeners = [listener(80, vec![12, 7]), listener(443, vec![7]), listener(8080, vec![])];
        let judged = |of: &ListenerView, verdict| {
            Arc::new(Judged {
                cookie: of.cookie,
                netns: of.netns,
                address: of.address,
                port: of.port,
                pids: Vec::new(),
                watched: false,
                verdict,
                evidence: Evidence::default(),
            })
        };
        let report = Report {
            listeners: vec![judged(&listeners[1], Verdict::AcceptorStalled), judged(&listeners[0], Verdict::Ok)],
            ..Report::default()
        };
        let mut asked = Vec::new();
        let rows = joined(&listeners, &report, |pid| {
            asked.push(pid);
            Some(format!("p{pid}"))
        });
        let shown: Vec<_> = rows.iter().map(|row| (row.verdict, row.process.as_deref())).collect();
        assert_eq!(
            shown,
            [(Some(Verdict::Ok), Some("p7")), (Some(Verdict::AcceptorStalled), Some("p7")), (None, None)]
        );
        assert_eq!(asked, [7], "a name is read once");
    }
}
