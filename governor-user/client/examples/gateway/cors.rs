//! Which pages in a browser may call the gateway, and that they may read what a refusal says. Outermost, so that it also
//! covers what the other layers answer.

use axum::http::{HeaderValue, Method};
use governor_client::http::EXPOSED_HEADERS;
use std::str::FromStr;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// An origin as given by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `*`
    Any,
    /// `https://app.example.com`
    One(HeaderValue),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let value = HeaderValue::from_str(text).map_err(|error| error.to_string())?;
        match text.split_once("://") {
            Some((_, host)) if !host.is_empty() && !host.contains('/') => Ok(Self::One(value)),
            Some(_) | None => Err("an origin is SCHEME://HOST[:PORT], without a path".to_owned()),
        }
    }
}

/// The layer for these origins; `None` when there are none.
pub(crate) fn layer(origins: &[Origin]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let one = |origin: &Origin| match origin {
        Origin::Any => None,
        Origin::One(value) => Some(value.clone()),
    };
    // Where every page may call, no list is needed.
    let listed: Option<Vec<HeaderValue>> = origins.iter().map(one).collect();
    let origins = listed.map_or_else(AllowOrigin::any, AllowOrigin::list);
    let layer = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST, Method::DELETE]);
    Some(layer.allow_headers(AllowHeaders::mirror_request()).expose_headers(EXPOSED_HEADERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_no_path() {
        assert_eq!("*".parse(), Ok(Origin::Any));
        assert!("https://app.example.com:8443".parse::<Origin>().is_ok());
        for wrong in ["", "app.example.com", "https://", "https://app.example.com/", "https://a\nb"] {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong:?}");
        }
    }
}
