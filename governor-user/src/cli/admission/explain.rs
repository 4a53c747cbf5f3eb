//! `governorctl explain`: one decision, in words and in numbers.

use crate::cli::admission::explain_lease;
use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::escaped;
use crate::cli::run::Ctl;
use crate::cli::text::ids::{self, Id};
use crate::cli::text::render::{Facts, Style, duration, key_name, short_hash, wrapped};
use governor_api::{Decision, Outcome};

/// Asks for what the id names and shows it; an id without its kind is a decision's, else a lease's.
pub(in crate::cli) fn run(ctl: &Ctl, id: &str) -> Result<Answer, Error> {
    match Id::parse(id) {
        Id::Decision(id) => decision(ctl, &id),
        Id::Lease(id) => explain_lease::lease(ctl, &id),
        Id::Session(id) => explain_lease::session(ctl, id),
        Id::Plain(id) => {
            let unknown = match decision(ctl, &id) {
                Err(error) if error.is_unknown() => error,
                known => return known,
            };
            explain_lease::lease(ctl, &id).map_err(|error| if error.is_unknown() { unknown } else { error })
        }
    }
}

/// An unknown decision is an error of the daemon.
fn decision(ctl: &Ctl, id: &str) -> Result<Answer, Error> {
    let decision: Decision = ctl.client.get(&format!("/v1/explain/{}", escaped(id)))?;
    Ok(ctl.show(&decision, |decision, style| text(decision, *style)))
}

fn text(decision: &Decision, style: Style) -> String {
    let n = &decision.numbers;
    let mut facts = Facts::default();
    facts.add("decision", format!("{}, {} ago", ids::decision(&decision.id), duration(decision.age_seconds)));
    facts.add(
        "outcome",
        match decision.outcome {
            Outcome::Shed => {
                format!("refused with {}, retry after {}", decision.status, duration(decision.retry_after_seconds))
            }
            Outcome::WouldPark => "granted; enforce would have parked it".to_owned(),
            Outcome::WouldRefuse => "granted; enforce would have refused it".to_owned(),
        },
    );
    facts.add("rule", format!("{} (origin {})", decision.reason, decision.origin));
    facts
        .add("pool", format!("{}: {} of {} slots in use, {} parked", decision.pool, n.in_flight, n.capacity, n.parked));
    facts.add(
        "key",
        format!(
            "{}: {} in flight, share {}; active keys {}",
            key_name(decision.key.as_deref(), decision.label.as_deref()),
            n.key_in_flight,
            n.share,
            n.active_keys
        ),
    );
    if let Some(org) = &decision.org {
        facts.add("org", short_hash(Some(org)));
    }
    if let Some(class) = &decision.class {
        facts.add("class", class.clone());
    }
    if n.limit > 0 {
        facts.add("limit", format!("{} of at most {}", n.limited, n.limit));
    }
    if let Some(priority) = decision.priority.as_deref().filter(|priority| *priority != "normal") {
        facts.add("priority", priority.to_owned());
    }
    if let Some(level) = decision.level.as_deref().filter(|level| *level != "normal") {
        facts.add("level", level.to_owned());
    }
    facts.add("node", format!("{} counted requests, cap {}", n.node_counted, n.node_cap));
    facts.add("waited", duration(decision.waited_seconds));
    facts.add("session", ids::session(decision.session));
    format!("{}\n{}", wrapped(&decision.explanation, 0, style.width()), facts.text(style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::explain::explain;
    use governor_api::Numbers;

    #[test]
    fn a_refusal_is_told_in_words_and_numbers() {
        let mut decision = Decision {
            id: "0001000000000007".into(),
            age_seconds: 75.0,
            session: 3,
            pool: "chat".into(),
            key: Some("ab".repeat(16)),
            label: Some("team-blue".into()),
            outcome: Outcome::Shed,
            reason: "fair_share".into(),
            origin: "key".into(),
            status: 429,
            retry_after_seconds: 4.0,
            waited_seconds: 30.0,
            numbers: Numbers {
                key_in_flight: 9,
                share: 9,
                in_flight: 95,
                capacity: 98,
                active_keys: 10,
                parked: 12,
                node_counted: 107,
                node_cap: 1000,
                ..Numbers::default()
            },
            explanation: String::new(),
            ..Decision::default()
        };
        decision.explanation = explain(&decision);
        insta::assert_snapshot!(text(&decision, Style::PLAIN), @r#"
        The request was refused by fair share: its key held 9 with a share of 9 while pool chat was congested, 95 of 98 slots in use by 10 active keys. It had been parked for 30 s and was answered 429 with origin key and told to come back after 4 s.

        decision  d-0001000000000007, 1m15s ago
        outcome   refused with 429, retry after 4s
        rule      fair_share (origin key)
        pool      chat: 95 of 98 slots in use, 12 parked
        key       abababababab… "team-blue": 9 in flight, share 9; active keys 10
        node      107 counted requests, cap 1000
        waited    30s
        session   s-3
        "#);
    }

    #[test]
    fn a_ceiling_names_the_org_the_class_and_both_numbers() {
        let mut decision = Decision {
            id: "0001000000000009".into(),
            pool: "chat".into(),
            key: Some("ab".repeat(16)),
            org: Some("cd".repeat(16)),
            class: Some("tier0".into()),
            priority: Some("sheddable".into()),
            level: Some("high".into()),
            reason: "class_cap".into(),
            origin: "org".into(),
            status: 429,
            retry_after_seconds: 1.0,
            numbers: Numbers { limit: 100, limited: 100, in_flight: 90, capacity: 98, ..Numbers::default() },
            ..Decision::default()
        };
        decision.explanation = explain(&decision);
        insta::assert_snapshot!(text(&decision, Style::PLAIN), @"
        The request was refused by the ceiling of its class tier0: 100 of at most 100 requests. It was answered 429 with origin org and told to come back after 1 s.

        decision  d-0001000000000009, 0s ago
        outcome   refused with 429, retry after 1s
        rule      class_cap (origin org)
        pool      chat: 90 of 98 slots in use, 0 parked
        key       abababababab…: 0 in flight, share 0; active keys 0
        org       cdcdcdcdcdcd…
        class     tier0
        limit     100 of at most 100
        priority  sheddable
        level     high
        node      0 counted requests, cap 0
        waited    0s
        session   s-0
        ");
    }
}
