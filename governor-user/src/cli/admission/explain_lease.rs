//! `governorctl explain` of a lease or of a session: what it holds, for whom, and when it ends.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::escaped;
use crate::cli::run::Ctl;
use crate::cli::text::ids;
use crate::cli::text::render::{Facts, Style, duration, key_name, or_dash, org_name, printable, wrapped};
use governor_api::{Failure, Lease, Session, Status};
use governor_observation::wording::counted;
use hyper::StatusCode;

/// Asks for a lease and shows it. One that is not held is an error of the daemon.
pub(in crate::cli) fn lease(ctl: &Ctl, id: &str) -> Result<Answer, Error> {
    let lease: Lease = ctl.client.get(&format!("/v1/leases/{}", escaped(id)))?;
    let status: Status = ctl.client.get("/v1/status")?;
    let holder = status.sessions.into_iter().find(|session| session.id == lease.session);
    Ok(ctl.show(&lease, |lease, style| lease_text(lease, holder.as_ref(), *style)))
}

/// Asks for the sessions and shows one.
pub(in crate::cli) fn session(ctl: &Ctl, id: u64) -> Result<Answer, Error> {
    let status: Status = ctl.client.get("/v1/status")?;
    let Some(session) = status.sessions.into_iter().find(|session| session.id == id) else {
        let failure = Failure {
            error: format!("session {} is not connected", ids::session(id)),
            hint: Some("governorctl status lists those that are".to_owned()),
        };
        return Err(Error::Refused { status: StatusCode::NOT_FOUND, failure });
    };
    Ok(ctl.show(&session, |session, style| session_text(session, *style)))
}

fn lease_text(lease: &Lease, holder: Option<&Session>, style: Style) -> String {
    let key = key_name(lease.key.as_deref(), lease.label.as_deref());
    let member = lease.member.as_deref().map_or_else(String::new, |member| format!(" on member {}", printable(member)));
    let holds = if lease.suspended { "is suspended: it holds no slot" } else { "holds a slot" };
    let sentence = format!(
        "Lease {} {holds} of pool {}{member} for key {key}. It was granted {} ago and expires in {} unless its proxy renews it.",
        ids::lease(&lease.lease),
        printable(&lease.pool),
        duration(lease.age_seconds),
        duration(lease.expires_seconds)
    );
    let mut facts = Facts::default();
    facts.add("lease", ids::lease(&lease.lease));
    facts.add("kind", lease.kind.clone());
    facts.add("priority", lease.priority.clone());
    if lease.org.is_some() {
        facts.add("org", org_name(lease.org.as_deref(), lease.org_name.as_deref()));
    }
    if let Some(traffic) = &lease.traffic {
        facts.add("traffic", printable(traffic));
    }
    facts.add(
        "last byte",
        lease.idle_seconds.map_or_else(|| "not reported".to_owned(), |idle| format!("{} ago", duration(idle))),
    );
    if lease.client_gone {
        facts.add("client", style.yellow("its connection is closed; the proxy still holds the lease"));
    }
    facts.add("asked at", or_dash(lease.site.as_deref().map(printable)));
    facts.add(
        "session",
        match holder {
            Some(session) => described(session),
            None => format!("{}, whose proxy is not connected", ids::session(lease.session)),
        },
    );
    format!("{}\n{}", wrapped(&sentence, 0, style.width()), facts.text(style))
}

fn session_text(session: &Session, style: Style) -> String {
    let held = counted(session.leases, "lease", "leases");
    let sentence = format!("Session {} is a connected proxy that holds {held}.", described(session));
    wrapped(&sentence, 0, style.width())
}

fn described(session: &Session) -> String {
    let process = session.pid.map_or_else(|| "of another pid namespace".to_owned(), |pid| format!("process {pid}"));
    format!("{} ({}, {process}, uid {})", ids::session(session.id), printable(&session.name), session.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_told_with_its_holder_and_its_end() {
        let lease = Lease {
            lease: "0001000000000004".into(),
            pool: "chat".into(),
            key: Some("9f".repeat(16)),
            label: Some("batch".into()),
            member: Some("account-3".into()),
            kind: "ordinary".into(),
            priority: "normal".into(),
            session: 2,
            age_seconds: 310.0,
            expires_seconds: 24.4,
            idle_seconds: Some(61.5),
            client_gone: true,
            site: Some("src/chat.rs:42".into()),
            ..Lease::default()
        };
        let holder = Session { id: 2, name: "gateway".into(), pid: Some(4211), uid: 33, leases: 61 };
        insta::assert_snapshot!(lease_text(&lease, Some(&holder), Style::PLAIN), @r#"
        Lease l-0001000000000004 holds a slot of pool chat on member account-3 for key 9f9f9f9f9f9f… "batch". It was granted 5m10s ago and expires in 24s unless its proxy renews it.

        lease      l-0001000000000004
        kind       ordinary
        priority   normal
        last byte  1m02s ago
        client     its connection is closed; the proxy still holds the lease
        asked at   src/chat.rs:42
        session    s-2 (gateway, process 4211, uid 33)
        "#);
        insta::assert_snapshot!(session_text(&holder, Style::PLAIN), @"Session s-2 (gateway, process 4211, uid 33) is a connected proxy that holds 61 leases.");
    }
}
