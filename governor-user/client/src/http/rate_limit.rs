//! `RateLimit` and `RateLimit-Policy` of a refusal, as structured fields (draft-ietf-httpapi-ratelimit-headers-10). The
//! policy is named by governor's own reason and counts concurrent requests, not requests per time.

use super::{RATE_LIMIT, RATE_LIMIT_POLICY};
use crate::lease::refused::Refused;
use http::{HeaderMap, HeaderValue};

/// Largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Nothing is left, and `seconds` from now there may be; and what the limit allows, where it is a number.
pub(super) fn insert(headers: &mut HeaderMap, refused: &Refused, seconds: u64) {
    let policy = refused.reason();
    // A name that would need escapes is none of governor's.
    if policy.is_empty() || !policy.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return;
    }
    let left = format!("\"{policy}\";r=0;t={}", seconds.min(MAX_INTEGER));
    if let Ok(value) = HeaderValue::try_from(left) {
        headers.insert(RATE_LIMIT, value);
    }
    let Some(quota) = refused.quota() else { return };
    if let Ok(value) = HeaderValue::try_from(format!("\"{policy}\";q={quota};qu=\"concurrent-requests\"")) {
        headers.insert(RATE_LIMIT_POLICY, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use governor_common::wire::reply::Origin;

    use super::*;

    fn fields(reason: &str, quota: Option<u32>) -> (Option<String>, Option<String>) {
        let refused = Refused::local(429, Origin::Key, reason, Duration::from_secs(1), String::new());
        let refused = match quota {
            Some(quota) => refused.with_quota(quota),
            None => refused,
        };
        let mut headers = HeaderMap::new();
        insert(&mut headers, &refused, 7);
        let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
        (text(RATE_LIMIT), text(RATE_LIMIT_POLICY))
    }

    #[test]
    fn the_limit_that_refused_is_named_with_what_it_allows() {
        let (left, policy) = fields("fair_share", Some(9));
        assert_eq!(left.as_deref(), Some(r#""fair_share";r=0;t=7"#));
        assert_eq!(policy.as_deref(), Some(r#""fair_share";q=9;qu="concurrent-requests""#));
    }

    #[test]
    fn a_refusal_without_a_number_states_no_quota() {
        assert_eq!(fields("overload", None), (Some(r#""overload";r=0;t=7"#.to_owned()), None));
    }

    #[test]
    fn a_name_that_would_break_the_field_is_left_out() {
        for name in ["", "a\"b", "a b", "a;b", "ä"] {
            assert_eq!(fields(name, Some(1)), (None, None), "{name}");
        }
    }
}
