//! Which headers of a message are meant for its final reader, and which for one connection only.

use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use governor_client::tower::CREDENTIAL_HEADERS;

/// How the provider is told whose slot to use, in place of the client's key.
pub(crate) const ACCOUNT: HeaderName = HeaderName::from_static("x-account");

/// Meant for one connection only (RFC 9110, 7.6.1), so never forwarded.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    HeaderName::from_static("transfer-encoding"),
    UPGRADE,
];

/// What of a message's headers is meant for its final reader.
pub(crate) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|names| names.split(',')) {
        kept.remove(name.trim());
    }
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// The headers of a request for the provider, on this account.
pub(crate) fn for_provider(headers: &HeaderMap, account: Option<&str>) -> HeaderMap {
    let mut headers = end_to_end(headers);
    // The client's key ends here; the account's own key takes its place at a real provider.
    for name in CREDENTIAL_HEADERS.into_iter().chain([ACCOUNT, HOST, CONTENT_LENGTH]) {
        headers.remove(name);
    }
    if let Some(account) = account.and_then(|account| HeaderValue::from_str(account).ok()) {
        headers.insert(ACCOUNT, account);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_of_one_connection_are_not_forwarded() {
        let kept = end_to_end(&headers(&[
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("content-type", "text/plain"),
            ("x-public", "2"),
        ]));
        assert_eq!(names(&kept), ["content-type", "x-public"]);
    }

    #[test]
    fn the_clients_key_ends_here_and_no_client_chooses_its_account() {
        let sent = for_provider(
            &headers(&[
                ("authorization", "Bearer sk-1"),
                ("x-api-key", "sk-1"),
                ("api-key", "sk-1"),
                ("x-goog-api-key", "sk-1"),
                ("x-account", "acct-09"),
                ("host", "g"),
            ]),
            Some("acct-01"),
        );
        assert_eq!((names(&sent), sent[ACCOUNT].to_str().unwrap()), (vec!["x-account"], "acct-01"));
    }
}
