//! Percent encoding of URLs. Knows neither paths nor queries.

/// Percent encoding resolved once; what is none stays as it is.
pub(crate) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
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
    bytes
}
