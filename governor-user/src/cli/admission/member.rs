//! `governorctl member POOL/NAME`: takes a member out, puts it back, ends its cool-down.

use crate::cli::admission::members::state;
use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::escaped;
use crate::cli::run::Ctl;
use crate::cli::text::render::printable;
use governor_api::{MemberChange, MemberRequest, MemberRow};
use hyper::Method;

/// Orders and shows what it was and is.
pub(in crate::cli) fn run(
    ctl: &Ctl,
    (pool, member): &(String, String),
    request: &MemberRequest,
) -> Result<Answer, Error> {
    let path = format!("/v1/members/{}/{}", escaped(pool), escaped(member));
    let change: MemberChange = ctl.client.send(Method::POST, &path, request)?;
    Ok(ctl.show(&change, |change, _| sentence(change)))
}

fn sentence(change: &MemberChange) -> String {
    let MemberChange { before, after, note } = change;
    let words = |row: &MemberRow| state(row.state, row.cooling_seconds);
    let note = note.as_ref().map(|note| format!("note: {}\n", printable(note))).unwrap_or_default();
    let name = printable(&format!("{}/{}", after.pool, after.name));
    format!("member {name} is {}, it was {}; {} in flight\n{note}", words(after), words(before), after.in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::MemberState;

    #[test]
    fn an_order_says_what_the_member_is_and_was() {
        let before = MemberRow {
            pool: "chat".into(),
            name: "acct-01".into(),
            state: MemberState::Cooling,
            cooling_seconds: Some(540.0),
            in_flight: 3,
            ..MemberRow::default()
        };
        let after = MemberRow { state: MemberState::Draining, cooling_seconds: None, ..before.clone() };
        let change = MemberChange { before, after, note: Some("it is drained".into()) };
        assert_eq!(
            sentence(&change),
            "member chat/acct-01 is draining, it was cooling, 9m00s more; 3 in flight\nnote: it is drained\n"
        );
    }
}
