//! Paths as an upstream may read them. Knows segments, not what they mean.

use std::borrow::Cow;

/// The path without a trailing slash, percent encoding, empty segments and dot segments. Borrows where there is nothing
/// of these, which is nearly always.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if !(path.contains('%') || path.contains("//") || path.contains("/.")) {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    Cow::Owned(segments.iter().flat_map(|segment| ["/", segment]).collect())
}

/// Whether the last segments are those of `suffix`, which begins with a slash. `*` is any one segment.
pub(super) fn ends_with(path: &str, suffix: &str) -> bool {
    if !suffix.contains('*') {
        return path.ends_with(suffix);
    }
    let mut segments = path.rsplit('/');
    // What comes before the suffix's first slash is no segment of it.
    suffix[1..].rsplit('/').all(|wanted| {
        segments.next().is_some_and(|segment| if wanted == "*" { !segment.is_empty() } else { segment == wanted })
    })
}

/// Percent encoding resolved once; what is none stays as it is.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.split_first_chunk::<2>()).flatten();
        let value = escaped.and_then(|(digits, after)| {
            let text = str::from_utf8(digits).ok()?;
            // `from_str_radix` would take a sign.
            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            Some((u8::from_str_radix(text, 16).ok()?, after))
        });
        let (byte, after) = value.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one() {
        for spelling in
            ["/v1/messages", "/v1/messages/", "/v1//messages", "/v1/./messages", "/v1/x/../messages", "/v1/%6dessages"]
        {
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
    }
}
