//! Where this machine gets Debian packages from: read from its own apt sources, so that mirrors and keyrings stay the
//! ones its owner chose. Reads them only; what is fetched is configured in [`super::apt`].

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Debian's releases as sources name them. Only needed to tell Debian's archive from others.
const RELEASES: [&str; 11] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "unstable",
    "testing",
    "stable",
    "oldstable",
    "oldoldstable",
];

/// An address and the keys it is checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Archive {
    pub(crate) uri: String,
    /// Value of `Signed-By`: a path, a fingerprint or a whole key over several lines. `None`: apt's trusted keys.
    pub(crate) signed_by: Option<String>,
}

/// Debian's two archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Archives {
    pub(crate) main: Archive,
    /// `None`: this machine uses no security archive.
    pub(crate) security: Option<Archive>,
}

impl Archives {
    /// Those of this machine.
    pub(crate) fn of_machine() -> Result<Self> {
        let mut sources = Vec::new();
        let mut read = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("list") => sources.extend(text.lines().filter_map(one_line)),
                Some("sources") => sources.extend(stanzas(&text)),
                _ => {}
            }
        };
        read(Path::new("/etc/apt/sources.list"));
        let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        let mut parts: Vec<_> = parts.map(|entry| entry.path()).collect();
        parts.sort();
        parts.iter().for_each(|path| read(path));
        choose(&sources).context("no archive of Debian is among this machine's apt sources")
    }

    /// Address of Debian's main archive.
    pub(crate) fn main_uri(&self) -> &str {
        &self.main.uri
    }

    /// The one that has `suite`.
    pub(crate) fn of(&self, suite: &str) -> Option<&Archive> {
        if suite.ends_with("-security") { self.security.as_ref() } else { Some(&self.main) }
    }
}

/// One enabled binary source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    archive: Archive,
    suites: Vec<String>,
    components: Vec<String>,
}

/// `deb [option=value …] uri suite component…`
fn one_line(line: &str) -> Option<Source> {
    let rest = line.split('#').next()?.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix(char::is_whitespace)?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by=")).map(str::to_owned);
    let mut words = rest.split_whitespace().map(str::to_owned);
    let uri = words.next()?;
    Some(Source { archive: Archive { uri, signed_by }, suites: vec![words.next()?], components: words.collect() })
}

/// Paragraphs of `Field: value`, continued by lines that begin with a space.
fn stanzas(text: &str) -> Vec<Source> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).flat_map(stanza).collect()
}

fn stanza(lines: &[&str]) -> Vec<Source> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| fields.iter().find(|(have, _)| have == name).map_or("", |(_, value)| value.as_str());
    let words = |name: &str| field(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let enabled = !matches!(field("enabled").to_ascii_lowercase().as_str(), "no" | "false" | "0");
    if !enabled || !words("types").iter().any(|kind| kind == "deb") {
        return Vec::new();
    }
    let signed_by = Some(field("signed-by").to_owned()).filter(|value| !value.is_empty());
    words("uris")
        .into_iter()
        .map(|uri| Source {
            archive: Archive { uri, signed_by: signed_by.clone() },
            suites: words("suites"),
            components: words("components"),
        })
        .collect()
}

fn choose(sources: &[Source]) -> Option<Archives> {
    let main = best(sources, "debian", |suite| RELEASES.contains(&suite))?;
    let security = best(sources, "debian-security", |suite| {
        suite.strip_suffix("-security").is_some_and(|release| RELEASES.contains(&release))
    });
    Some(Archives { main, security })
}

/// Other vendors name their suites like Debian's too, so the usual path and Debian's own keyring count for more than
/// the order; between equals the first wins.
fn best(sources: &[Source], path: &str, fits: impl Fn(&str) -> bool) -> Option<Archive> {
    let score = |source: &Source| {
        let usual = source.archive.uri.trim_end_matches('/').ends_with(&format!("/{path}"));
        let keyring = source.archive.signed_by.as_ref().is_some_and(|keys| keys.contains("debian-archive"));
        u8::from(usual) + u8::from(keyring)
    };
    sources
        .iter()
        .filter(|source| source.suites.iter().any(|suite| fits(suite)))
        .filter(|source| source.components.iter().any(|component| component == "main"))
        .rev()
        .max_by_key(|source| score(source))
        .map(|source| source.archive.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
";

    #[test]
    fn stanzas_give_both_archives_with_their_keys() {
        let archives = choose(&stanzas(DEB822)).unwrap();
        assert_eq!(archives.main.uri, "http://mirror.example/debian");
        assert_eq!(archives.main.signed_by.as_deref(), Some("/usr/share/keyrings/debian-archive-keyring.gpg"));
        let security = archives.of("trixie-security").unwrap();
        assert_eq!(security.uri, "http://mirror.example/debian-security");
        assert!(security.signed_by.as_ref().unwrap().ends_with("\n .\n abc"));
        assert_eq!(archives.of("sid"), Some(&archives.main));
    }

    #[test]
    fn one_line_sources_are_read_with_and_without_options() {
        let lines = "deb [arch=amd64 signed-by=/k.gpg] https://vendor.example/apt trixie main\n\
                     # deb http://off.example/debian trixie main\n\
                     deb-src http://mirror.example/debian trixie main\n\
                     deb http://mirror.example/debian/ trixie main # ours\n";
        let sources: Vec<Source> = lines.lines().filter_map(one_line).collect();
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].archive.signed_by.as_deref(), Some("/k.gpg"));
        let archives = choose(&sources).unwrap();
        assert_eq!(archives.main, Archive { uri: "http://mirror.example/debian/".into(), signed_by: None });
        assert_eq!(archives.of("trixie-security"), None);
    }

    #[test]
    fn sources_of_others_are_no_archive_of_debian() {
        let docker = one_line("deb https://vendor.example/linux/debian bookworm stable");
        let tools = one_line("deb https://vendor.example/apt nodistro main");
        assert_eq!(choose(&[docker.unwrap(), tools.unwrap()]), None);
    }
}
