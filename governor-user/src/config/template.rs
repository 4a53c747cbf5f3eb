//! The commented default `governor.toml`, generated from the schema so that it cannot fall behind it.

use super::schema::{settings, variable};
use super::value::Kind;

/// What stands for the names an operator chooses.
const EXAMPLES: &[(&str, &str)] = &[
    ("pools.*", "pools.chat"),
    ("members.*", "members.acct-01"),
    ("traffic.*", "traffic.media"),
    ("listener.*", "listener.\":443\""),
    ("cgroups.*", "cgroups.\"/system.slice/gateway.service\""),
    ("classes.*", "classes.tier0"),
    ("orgs.*", "orgs.acme"),
    ("keys.*", "keys.batch"),
];

/// The text of the default configuration file.
#[must_use]
pub fn default_file() -> String {
    let mut out = String::from(
        "# governor.toml: every setting with its built-in value. Generated; a test keeps it true.\n\
         # Each key can also be set by the environment variable named beside it.\n",
    );
    let mut section = String::new();
    for row in settings() {
        let key = EXAMPLES.iter().fold(row.key.to_owned(), |key, (any, one)| key.replacen(any, one, 1));
        let (table, leaf) = key.rsplit_once('.').unwrap_or(("", &key));
        if table != section {
            table.clone_into(&mut section);
            let example = if row.key.contains('*') { "# " } else { "" };
            out.push_str(&format!("\n{example}[{table}]\n"));
        }
        let parts: Vec<String> = row.key.replace('*', "NAME").split('.').map(str::to_owned).collect();
        out.push_str(&format!("# {} ({})\n", row.doc, variable(&parts)));
        let value = row.default.unwrap_or_else(|| example(row.kind, leaf));
        out.push_str(&format!("# {leaf} = {}\n", written(row.kind, value)));
    }
    out
}

/// A value for a setting without a default.
fn example(kind: Kind, leaf: &str) -> &'static str {
    match (kind, leaf) {
        (Kind::Identity, _) => "0123456789abcdef0123456789abcdef",
        (_, "mode") => "enforce",
        (_, "max_wait") => "500ms",
        (_, "quiet") => "10m",
        (_, "cap") => "100",
        (_, "weight") => "1",
        (_, "floor") => "0",
        _ => "1000",
    }
}

/// A default as TOML writes it.
fn written(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Bool | Kind::Integer { .. } => text.to_owned(),
        Kind::List => "[]".to_owned(),
        Kind::Duration { .. }
        | Kind::Choice(_)
        | Kind::Text
        | Kind::FileMode
        | Kind::Listen
        | Kind::FairShare
        | Kind::Headroom
        | Kind::Identity
        | Kind::Mode => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_file_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/governor.toml");
        if std::env::var_os("GOVERNOR_BLESS").is_some() {
            std::fs::write(path, default_file()).unwrap();
        }
        let packaged = std::fs::read_to_string(path).unwrap();
        assert!(
            packaged == default_file(),
            "run the tests once with GOVERNOR_BLESS=1 to write dist/governor.toml anew"
        );
    }

    #[test]
    fn the_file_with_every_line_switched_on_is_valid() {
        let on: String = default_file()
            .lines()
            .map(|line| {
                let rest = line.strip_prefix("# ").unwrap_or(line);
                let is_setting = rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
                if is_setting || rest.starts_with('[') { format!("{rest}\n") } else { format!("{line}\n") }
            })
            .collect();
        let layer = super::super::file::parse("default", &on).unwrap();
        assert_eq!(layer.entries.len(), settings().count());
    }
}
