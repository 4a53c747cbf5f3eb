//! `governorctl refusals`: which requests were refused, of which key and why; the newest ones listed, all of them counted.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::ids;
use crate::cli::text::render::{Column, Style, Table, duration, or_dash, printable, short_hash, wrapped};
use governor_api::{Refusals, RefusalsQuery};
use governor_observation::wording::counted;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, query: RefusalsQuery) -> Result<Answer, Error> {
    let RefusalsQuery { key, pool, reason, since_seconds, limit, observed } = query;
    let path = with_query(
        "/v1/refusals",
        &[
            ("key", key),
            ("pool", pool),
            ("reason", reason),
            ("since_seconds", since_seconds.map(|seconds| seconds.to_string())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("observed", (observed > 0).then(|| observed.to_string())),
        ],
    );
    let refusals: Refusals = ctl.client.get(&path)?;
    Ok(ctl.show(&refusals, |refusals, style| text(refusals, observed > 0, *style)))
}

pub(in crate::cli) fn text(refusals: &Refusals, observed: bool, style: Style) -> String {
    let line = |text: &str| wrapped(text, 0, style.width());
    let window = duration(seconds(refusals.since_seconds));
    let what = match observed {
        true => counted(
            refusals.total,
            "request that enforce would have held back",
            "requests that enforce would have held back",
        ),
        false => counted(refusals.total, "refusal", "refusals"),
    };
    let mut out = line(&format!("{what} in the last {window}"));
    if let Some(oldest) = refusals.oldest_seconds.filter(|oldest| *oldest < refusals.since_seconds) {
        out.push_str(&line(&format!(
            "the oldest decision that is kept is {} old: decisions are kept for 24 hours, at most 64 MiB of them",
            duration(seconds(oldest))
        )));
    }
    if refusals.total == 0 {
        return out;
    }
    let mut reasons = Table::new(&[
        Column::text("POOL").rank(0),
        Column::word("REASON").rank(0),
        Column::number("STATUS").rank(1),
        Column::number("COUNT").rank(0),
    ]);
    for row in &refusals.by_reason {
        reasons.row([row.pool.clone(), row.reason.clone(), row.status.to_string(), row.count.to_string()]);
    }
    let mut rows = Table::new(&[
        Column::number("AGE").rank(0),
        Column::word("DECISION").rank(0),
        Column::text("POOL").rank(3),
        Column::text("KEY").rank(0),
        Column::text("LABEL").rank(1),
        Column::word("REASON").rank(0),
        Column::number("STATUS").rank(2),
        Column::number("WAITED").rank(1),
        Column::number("RETRY AFTER").rank(4),
    ]);
    for row in &refusals.rows {
        rows.row([
            duration(row.age_seconds),
            ids::decision(&row.id),
            row.pool.clone(),
            short_hash(row.key.as_deref()),
            or_dash(row.label.as_deref().map(printable)),
            row.reason.clone(),
            row.status.to_string(),
            duration(row.waited_seconds),
            duration(row.retry_after_seconds),
        ]);
    }
    format!("{out}\n{}\n{}", reasons.text(style, "none"), rows.text(style, "none is listed"))
}

fn seconds(seconds: u64) -> f64 {
    std::time::Duration::from_secs(seconds).as_secs_f64()
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;
    use governor_api::{Decision, RefusalCount};

    pub(in crate::cli) fn some(pool: &str, label: &str) -> Refusals {
        Refusals {
            since_seconds: 3600,
            oldest_seconds: Some(1020),
            total: 5012,
            by_reason: vec![RefusalCount { pool: pool.into(), reason: "fair_share".into(), status: 429, count: 5012 }],
            rows: vec![Decision {
                id: "0001000000000007".into(),
                age_seconds: 75.0,
                pool: pool.into(),
                key: Some("c4".repeat(16)),
                label: Some(label.into()),
                reason: "fair_share".into(),
                status: 429,
                waited_seconds: 30.0,
                retry_after_seconds: 4.0,
                ..Decision::default()
            }],
        }
    }

    #[test]
    fn all_are_counted_and_the_newest_listed() {
        insta::assert_snapshot!(text(&some("chat", "batch"), false, Style::PLAIN), @"
        5012 refusals in the last 1h00m
        the oldest decision that is kept is 17m00s old: decisions are kept for 24 hours, at most 64 MiB of them

        POOL  REASON      STATUS  COUNT
        chat  fair_share     429   5012

          AGE  DECISION            POOL  KEY            LABEL  REASON      STATUS  WAITED  RETRY AFTER
        1m15s  d-0001000000000007  chat  c4c4c4c4c4c4…  batch  fair_share     429     30s           4s
        ");
    }

    #[test]
    fn none_is_one_line() {
        let none =
            Refusals { total: 0, by_reason: vec![], rows: vec![], oldest_seconds: None, ..some("chat", "batch") };
        assert_eq!(text(&none, false, Style::PLAIN), "0 refusals in the last 1h00m\n");
    }
}
