//! `governorctl key --hash`: the keyed hash that stands for a raw API key, for `[keys.NAME] id = …` and for `key`. The raw
//! key comes from standard input and the node secret from the environment or a file: arguments are visible to every user.
//! Asks no daemon.

use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

/// Environment variable of the node secret, as the guide's proxies read it.
const SECRET: &str = "NODE_SECRET";

/// Longest raw key, in bytes.
const LONGEST: u64 = 64 * 1024;

/// What is shown as JSON.
#[derive(Debug, Serialize)]
struct Hashed {
    /// 32 hexadecimal digits.
    key: String,
}

/// Reads key and secret and shows the hash.
pub(in crate::cli) fn run(ctl: &Ctl, secret_file: Option<&Path>) -> Result<Answer, Error> {
    let secret = match secret_file {
        Some(path) => {
            line(std::fs::read(path).map_err(|source| Error::Local { doing: "read the secret's file", source })?)
        }
        None => std::env::var_os(SECRET).map(std::os::unix::ffi::OsStringExt::into_vec).unwrap_or_default(),
    };
    if secret.is_empty() {
        let source =
            io::Error::other(format!("the node secret is empty: set {SECRET} or name a file with --secret-file"));
        return Err(Error::Local { doing: "hash a key", source });
    }
    let mut raw = Vec::new();
    let read = io::stdin().lock().take(LONGEST + 1).read_to_end(&mut raw);
    read.map_err(|source| Error::Local { doing: "read the key from standard input", source })?;
    let raw = line(raw);
    let wrong = match raw.len() {
        0 => Some("standard input is empty: write the raw key to it"),
        length if u64::try_from(length).unwrap_or(u64::MAX) > LONGEST => {
            Some("the key on standard input is longer than 64 KiB")
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        return Err(Error::Local { doing: "hash a key", source: io::Error::other(wrong) });
    }
    let hashed = Hashed { key: hash(&secret, &raw) };
    Ok(ctl.show(&hashed, |hashed, _| format!("{}\n", hashed.key)))
}

/// The first 16 bytes of HMAC-SHA256(secret, raw), as the client library sends them.
fn hash(secret: &[u8], raw: &[u8]) -> String {
    let mut keyed = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    keyed.update(raw);
    keyed.finalize().into_bytes().iter().take(16).fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string can be written to");
        out
    })
}

/// Without the end of line that an editor or `echo` puts behind it.
fn line(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_hmac_sha256_cut_to_16_bytes() {
        // Test case 2 of RFC 4231.
        assert_eq!(hash(b"Jefe", b"what do ya want for nothing?"), "5bdcc146bf60754e6a042426089575c7");
    }

    #[test]
    fn one_end_of_line_is_no_part_of_a_key() {
        for (text, kept) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("", "")] {
            assert_eq!(line(text.as_bytes().to_vec()), kept.as_bytes(), "{text:?}");
        }
    }
}
