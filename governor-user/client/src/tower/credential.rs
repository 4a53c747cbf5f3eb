//! Where API clients put their credential. Finds it; whether it is valid is the gateway's to say.

use crate::governor::Governor;
use crate::http::percent;
use crate::lease::request::AcquireRequest;
use http::request::Parts;
use http::{HeaderName, header};
use std::borrow::Cow;

/// Headers that carry a credential, in the order in which [`credential`] looks at them: OpenAI and most others,
/// Anthropic, Azure, Google. A gateway that calls upstream with credentials of its own removes them all, and the query
/// parameter `key`.
pub const CREDENTIAL_HEADERS: [HeaderName; 4] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// The credential a client sends, without what surrounds it: the same secret is the same bytes in whichever place it
/// comes. The first of [`CREDENTIAL_HEADERS`] that has one, then Google's query parameter `key`; `None` without any.
///
/// Of `Authorization`, `SCHEME TOKEN` (the scheme's name is ignored) or a token alone. A value of several parts
/// (Digest, AWS Signature) is signed for each request and identifies no caller: it is ignored.
#[must_use]
pub fn credential(head: &Parts) -> Option<Cow<'_, [u8]>> {
    let header = |name: &HeaderName| {
        let value = head.headers.get(name)?.as_bytes().trim_ascii();
        if *name == header::AUTHORIZATION { token(value) } else { Some(value) }.filter(|raw| !raw.is_empty())
    };
    CREDENTIAL_HEADERS.iter().find_map(header).map(Cow::Borrowed).or_else(|| query_key(head.uri.query()?))
}

/// The default extractor: the key is the keyed hash of the [`credential`]. A request without one has no key:
/// all such requests of a pool share one identity, `anonymous`, which is judged like a key.
#[must_use]
pub fn key_from_credential(governor: &Governor, head: &Parts, ask: AcquireRequest) -> AcquireRequest {
    match credential(head) {
        Some(raw) => ask.key(governor.key(&raw)),
        None => ask,
    }
}

/// The token of an `Authorization` header (RFC 9110, 11.4), of whatever scheme.
fn token(value: &[u8]) -> Option<&[u8]> {
    let mut parts = value.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
    let (first, second) = (parts.next()?, parts.next());
    let token = match second {
        Some(token) => token,
        // A scheme's name without anything is no token.
        None if first.eq_ignore_ascii_case(b"bearer") || first.eq_ignore_ascii_case(b"basic") => return None,
        None => first,
    };
    (parts.next().is_none() && !token.contains(&b',')).then_some(token)
}

fn query_key(query: &str) -> Option<Cow<'_, [u8]>> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("key="))?.as_bytes();
    let value = if value.contains(&b'%') { Cow::Owned(percent::decoded(value)) } else { Cow::Borrowed(value) };
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn found(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let request = headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
        let (head, ()) = request.body(()).unwrap().into_parts();
        credential(&head).map(|raw| String::from_utf8(raw.into_owned()).unwrap())
    }

    #[test]
    fn the_same_secret_is_found_in_every_place() {
        for (uri, headers) in [
            ("/", &[("authorization", "Bearer sk-1")][..]),
            ("/", &[("authorization", "bearer  sk-1 ")]),
            ("/", &[("authorization", "Token sk-1")]),
            ("/", &[("authorization", "sk-1")]),
            ("/", &[("x-api-key", "sk-1")]),
            ("/", &[("api-key", " sk-1 ")]),
            ("/", &[("x-goog-api-key", "sk-1")]),
            ("/v1beta/models/m:generateContent?alt=sse&key=sk-1", &[]),
            ("/?key=sk%2d1&x=2", &[]),
        ] {
            assert_eq!(found(uri, headers).as_deref(), Some("sk-1"), "{uri} {headers:?}");
        }
    }

    #[test]
    fn the_first_place_in_order_counts() {
        let mut headers =
            vec![("x-goog-api-key", "d"), ("api-key", "c"), ("x-api-key", "b"), ("authorization", "Bearer a")];
        for expected in ["a", "b", "c", "d"] {
            assert_eq!(found("/?key=e", &headers).as_deref(), Some(expected));
            headers.pop();
        }
        assert_eq!(found("/?key=e", &headers).as_deref(), Some("e"));
    }

    #[test]
    fn what_is_no_lasting_secret_is_passed_over() {
        let digest = r#"Digest username="u", nonce="n""#;
        let signed = "AWS4-HMAC-SHA256 Credential=AK/2026, SignedHeaders=host, Signature=ab";
        for value in ["", "Bearer", "Bearer ", "basic", digest, signed, "Digest a,b"] {
            assert_eq!(found("/", &[("authorization", value)]), None, "{value}");
            let next = found("/", &[("authorization", value), ("x-api-key", "sk-1")]);
            assert_eq!(next.as_deref(), Some("sk-1"), "{value}: the next place counts");
        }
        for uri in ["/", "/?", "/?key", "/?key=", "/?monkey=1", "/?KEY=1"] {
            assert_eq!(found(uri, &[("x-api-key", "")]), None, "{uri}");
        }
    }
}
