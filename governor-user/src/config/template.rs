//! The commented default `governor.toml` and the reference of all settings, generated from the declarations so that they
//! cannot fall behind them.

use super::schema::{Effect, Setting, settings, variable};
use super::value::{Kind, format_duration};
use std::time::Duration;

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
        out.push_str(&format!("# {} ({})\n", row.doc(), variable(&parts)));
        out.push_str(&format!("# {leaf} = {}\n", written(row.kind, row.example)));
    }
    out
}

/// The text of the reference.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from(
        "# Settings\n\n\
         Every setting of governord, in the order of `governor.toml`. Generated from the declarations in the source; a test keeps it \
         true.\n\n\
         A value comes from the first of these that has one: `governorctl set` (settings that take effect at run time), the \
         environment, the file, the built-in value. `governorctl config --origin` shows which one it is. `NAME` stands for a name \
         that you choose in the file. A duration needs a unit (`ms`, `s`, `m`, `h`, `d`), e.g. `1h30m`.\n",
    );
    let mut section = "";
    for row in settings() {
        let (table, _) = row.key.rsplit_once('.').unwrap_or_default();
        if table != section {
            section = table;
            out.push_str(&format!("\n## {}\n", named(table)));
        }
        out.push_str(&entry(row));
    }
    out
}

fn entry(row: &Setting) -> String {
    let key = named(row.key);
    let parts: Vec<String> = key.split('.').map(str::to_owned).collect();
    let built_in = match row.default {
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
        None => "none".to_owned(),
    };
    let effect = match row.effect {
        Effect::RunTime => "at run time (`governorctl set`) or with a reload",
        Effect::Reload => "with a reload",
        Effect::Restart => "after a restart",
    };
    format!(
        "\n### `{key}`\n\n{}\n\n- Value: {}. Built-in: {built_in}.\n- Takes effect {effect}.\n- Environment: `{}`.\n",
        row.doc(),
        described(row.kind),
        variable(&parts)
    )
}

fn named(key: &str) -> String {
    key.replace('*', "NAME")
}

/// A form in words, with its bounds.
fn described(kind: Kind) -> String {
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match kind {
        Kind::Bool => "`true` or `false`".to_owned(),
        Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Duration { min_ms, max_ms } => {
            let shown = |ms| format_duration(Duration::from_millis(ms));
            format!("a duration from {} to {}", shown(min_ms), shown(max_ms))
        }
        Kind::Choice(all) => format!("one of {}", words(all)),
        Kind::Text => "text".to_owned(),
        Kind::FileMode => "an octal file mode such as `0660`".to_owned(),
        Kind::Listen => "an address and port such as `127.0.0.1:9464`, or `off`".to_owned(),
        Kind::List => "an array of strings; in the environment words separated by commas".to_owned(),
        Kind::FairShare => "`off`, `max-min`, or a threshold from 1 to 100 percent".to_owned(),
        Kind::Headroom => "a number of slots, or a percentage such as `4%` or `0.5%`".to_owned(),
        Kind::Mode => words(&["observe", "enforce"]).replace(", ", " or "),
        Kind::Identity => "32 hexadecimal digits, as `governorctl keys` shows them".to_owned(),
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
    fn the_packaged_files_are_the_generated_ones() {
        let dist = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dist"));
        for (name, text) in [("governor.toml", default_file()), ("CONFIGURATION.md", reference())] {
            let path = dist.join(name);
            if std::env::var_os("GOVERNOR_BLESS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let packaged = std::fs::read_to_string(path).unwrap_or_default();
            assert!(packaged == text, "run the tests once with GOVERNOR_BLESS=1 to write dist/{name} anew");
        }
    }

    #[test]
    fn the_reference_has_each_setting_once() {
        let text = reference();
        for row in settings() {
            let heading = format!("\n### `{}`\n", named(row.key));
            assert_eq!(text.matches(&heading).count(), 1, "{}", row.key);
        }
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
