//! Paths as an upstream may read them. Knows segments, not what they mean.

use crate::http::percent;
use std::borrow::Cow;

/// The path without a trailing slash, percent encoding, path parameters (`;v=1`), empty segments and dot segments. Borrows
/// where there is nothing of these, which is nearly always.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if !(path.contains(['%', ';']) || path.contains("//") || path.contains("/.")) {
        return Cow::Borrowed(path);
    }
    let decoded = percent::decoded(path.as_bytes());
    let decoded = String::from_utf8_lossy(&decoded);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/').map(|segment| segment.split(';').next().unwrap_or_default()) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    Cow::Owned(segments.iter().flat_map(|segment| ["/", segment]).collect())
}

/// Whether the last segments are those of `suffix`, which begins with a slash. `*` is any one segment, `*:verb` any one
/// that ends in `:verb`.
pub(super) fn ends_with(path: &str, suffix: &str) -> bool {
    if !suffix.contains('*') {
        return path.ends_with(suffix);
    }
    matches(path, suffix, |segment, wanted| segment == wanted)
}

/// The same, whatever the case of the letters.
pub(super) fn ends_with_in_any_case(path: &str, suffix: &str) -> bool {
    matches(path, suffix, <[u8]>::eq_ignore_ascii_case)
}

fn matches(path: &str, suffix: &str, same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let mut segments = path.rsplit('/').map(str::as_bytes);
    // What comes before the suffix's first slash is no segment of it.
    suffix[1..].rsplit('/').all(|wanted| {
        segments.next().is_some_and(|segment| match wanted.strip_prefix('*') {
            Some(end) => {
                let any = segment.len().checked_sub(end.len()).filter(|any| *any > 0);
                any.is_some_and(|any| same(&segment[any..], end.as_bytes()))
            }
            None => same(segment, wanted.as_bytes()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one() {
        for spelling in [
            "/v1/messages",
            "/v1/messages/",
            "/v1//messages",
            "/v1/./messages",
            "/v1/x/../messages",
            "/v1/%6dessages",
            "/v1/messages;v=1",
            "/v1;a=b/messages;",
            "/v1/messages%3Bv=1",
        ] {
            assert_eq!(normal(spelling), "/v1/messages", "{spelling}");
        }
        assert!(matches!(normal("/v1/messages"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_no_escape_stays() {
        for path in ["/%", "/%6", "/%zz", "/%+1"] {
            assert_eq!(normal(path), path);
        }
        assert_eq!(normal("/%ff"), "/\u{fffd}");
        assert_eq!(normal("/../../x"), "/x");
    }

    #[test]
    fn a_star_is_one_segment() {
        assert!(ends_with("/v1/videos/v_1/remix", "/videos/*/remix"));
        for path in ["/videos//remix", "/videos/remix", "/v1/videos/a/b/remix", "/myvideos/a/remix"] {
            assert!(!ends_with(path, "/videos/*/remix"), "{path}");
        }
        assert!(ends_with("/v1beta/models/m-2.5:embed", "/*:embed"));
        for path in ["/v1beta/models/:embed", "/v1beta/models/m:embed/x", "/v1beta/models/membed"] {
            assert!(!ends_with(path, "/*:embed"), "{path}");
        }
    }
}
