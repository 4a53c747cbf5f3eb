//! The three facts of every request, written by hand: a serializer that knows nothing of them takes longer than the
//! decision they record. The tests hold what is written here against what [`Fact`](super::Fact) reads.

use governor_common::wire::KeyHash;
use governor_engine::id::{LeaseId, RequestId, SessionId};
use governor_engine::io::Acquire;
use governor_engine::time::Instant;

/// [`Fact::Asked`](super::Fact::Asked).
pub(super) fn asked(out: &mut Vec<u8>, ask: &Acquire, pool: &str, now: Instant) {
    number(out, "{\"ask\":{\"t\":", now.0);
    number(out, ",\"s\":", ask.session.0);
    number(out, ",\"r\":", ask.request.0.into());
    out.extend_from_slice(b",\"p\":");
    serde_json::to_writer(&mut *out, pool).expect("a string serializes, and a vector takes it");
    digits(out, ",\"k\":\"", ask.key.map(super::translate::hash));
    digits(out, ",\"g\":\"", ask.org.map(super::translate::org_hash));
    if let Some(wait) = ask.max_wait {
        number(out, ",\"w\":", super::translate::millis(wait).into());
    }
    out.extend_from_slice(b"}}");
}

/// [`Fact::Granted`](super::Fact::Granted).
pub(super) fn granted(out: &mut Vec<u8>, session: SessionId, request: RequestId, lease: LeaseId, now: Instant) {
    number(out, "{\"got\":{\"t\":", now.0);
    number(out, ",\"s\":", session.0);
    number(out, ",\"r\":", request.0.into());
    number(out, ",\"l\":", lease.0);
    out.extend_from_slice(b"}}");
}

/// [`Fact::Ended`](super::Fact::Ended).
pub(super) fn ended(out: &mut Vec<u8>, lease: LeaseId, now: Instant) {
    number(out, "{\"end\":{\"t\":", now.0);
    number(out, ",\"l\":", lease.0);
    out.extend_from_slice(b"}}");
}

fn number(out: &mut Vec<u8>, before: &str, mut number: u64) {
    out.extend_from_slice(before.as_bytes());
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        start = at;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

fn digits(out: &mut Vec<u8>, before: &str, hash: Option<KeyHash>) {
    if let Some(hash) = hash {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(&hash.digits());
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fact;
    use super::*;
    use governor_engine::id::{KeyId, OrgId};
    use governor_engine::time::Duration;
    use proptest::prelude::*;

    fn read(write: impl Fn(&mut Vec<u8>)) -> Fact {
        let mut out = Vec::new();
        write(&mut out);
        let fact: Fact = serde_json::from_slice(&out).unwrap();
        assert_eq!(serde_json::to_vec(&fact).unwrap(), out, "as the serializer would write it");
        fact
    }

    proptest! {
        #[test]
        fn what_is_written_by_hand_is_read_as_the_facts_it_means(
            (t, s, r, l) in any::<(u64, u64, u32, u64)>(),
            pool in ".{0,12}",
            (k, g) in any::<(Option<u128>, Option<u128>)>(),
            w in any::<Option<u32>>(),
        ) {
            let (session, request, lease, now) = (SessionId(s), RequestId(r), LeaseId(l), Instant(t));
            let ask = Acquire {
                session,
                request,
                key: k.map(KeyId),
                org: g.map(OrgId),
                max_wait: w.map(|ms| Duration::from_millis(ms.into())),
                ..Acquire::default()
            };
            let (k, g) = (k.map(|key| format!("{key:032x}")), g.map(|org| format!("{org:032x}")));
            let said = read(|out| asked(out, &ask, &pool, now));
            prop_assert_eq!(said, Fact::Asked { t, s, r, p: pool, k, g, w });
            prop_assert_eq!(read(|out| granted(out, session, request, lease, now)), Fact::Granted { t, s, r, l });
            prop_assert_eq!(read(|out| ended(out, lease, now)), Fact::Ended { t, l });
        }
    }
}
