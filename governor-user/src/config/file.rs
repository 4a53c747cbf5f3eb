//! The file layer: TOML text to settings with the line each stands on. Knows where things are written, not what they
//! come to.

use super::Problem;
use super::schema;
use super::value::Raw;
use governor_common::wire::MAX_NAME;
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What one file says.
#[derive(Clone, Debug, Default)]
pub struct FileLayer {
    /// Settings in the order of their keys: path, value as written, line.
    pub entries: Vec<(Vec<String>, Raw, usize)>,
    /// Names the operator chose, as path prefixes: `pools.chat`, `pools.chat.members.a`, `cgroups./x`.
    pub names: BTreeSet<Vec<String>>,
}

/// Reads TOML text. `file` is how problems name it.
///
/// # Errors
/// Every problem of the text, not only the first: TOML mistakes, unknown sections and keys with the nearest name.
pub fn parse(file: &str, text: &str) -> Result<FileLayer, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let mut reader = Reader { file, breaks, layer: FileLayer::default(), problems: Vec::new() };
    for error in &errors {
        let line = error.span().map_or(1, |span| reader.line(span.start));
        reader.problems.push(Problem::new(format!("{file}:{line}"), error.message().to_owned()));
    }
    reader.table(&mut Vec::new(), table.get_ref());
    if reader.problems.is_empty() { Ok(reader.layer) } else { Err(reader.problems) }
}

struct Reader<'a> {
    file: &'a str,
    /// Where its lines end.
    breaks: Vec<usize>,
    layer: FileLayer,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        self.breaks.partition_point(|at| *at < offset) + 1
    }

    fn table(&mut self, path: &mut Vec<String>, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            path.push(key.get_ref().to_string());
            self.entry(path, self.line(key.span().start), value);
            path.pop();
        }
    }

    fn entry(&mut self, path: &mut Vec<String>, line: usize, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(inner) if schema::is_section(path) => {
                self.name(path, line);
                self.table(path, inner);
            }
            DeValue::Array(items) if name_field(path).is_some() => {
                let field = name_field(path).unwrap_or_default();
                for item in items.iter() {
                    self.member(path, field, self.line(item.span().start), item.get_ref());
                }
            }
            other if schema::setting(path).is_some() => {
                self.layer.entries.push((path.clone(), raw(other), line));
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => self.unknown(path, line),
        }
    }

    /// One `[[…]]` entry: what `field` says becomes part of the path.
    fn member(&mut self, path: &mut Vec<String>, field: &str, line: usize, item: &DeValue<'_>) {
        let Some(table) = item.as_table() else {
            self.problem(line, format!("\"{}\" holds tables: write [[{}]]", path.join("."), path.join(".")));
            return;
        };
        let Some(name) = table.get(field).and_then(|value| value.get_ref().as_str()) else {
            self.problem(line, format!("a [[{}]] entry needs {field} = \"…\"", path.join(".")));
            return;
        };
        path.push(name.to_owned());
        self.check_length(path, line);
        if !self.layer.names.insert(path.clone()) {
            self.problem(line, format!("\"{name}\" stands twice in \"{}\"", path[..path.len() - 1].join(".")));
        }
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref().as_ref() != field) {
            path.push(key.get_ref().to_string());
            self.entry(path, self.line(key.span().start), value);
            path.pop();
        }
        path.pop();
    }

    fn name(&mut self, path: &[String], line: usize) {
        if schema::is_name(path) {
            self.check_length(path, line);
            self.layer.names.insert(path.to_vec());
        }
    }

    /// Frames have room for a name of [`MAX_NAME`] bytes. Paths of cgroups and addresses are in none.
    fn check_length(&mut self, path: &[String], line: usize) {
        let Some((name, parents)) = path.split_last() else { return };
        let is_sent = !matches!(parents.first().map(String::as_str), Some("cgroups" | "tuner"));
        if is_sent && !(1..=MAX_NAME).contains(&name.len()) {
            let section = parents.join(".");
            self.problem(line, format!("a name in \"{section}\" has {} bytes, expected 1 to {MAX_NAME}", name.len()));
        }
    }

    fn unknown(&mut self, path: &[String], line: usize) {
        let what = if schema::is_section(path) { "expected a section, found the value" } else { "unknown key" };
        let hint = match schema::nearest(path) {
            Some(name) if Some(&name) != path.last() => format!(": did you mean \"{name}\"?"),
            _ => String::new(),
        };
        self.problem(line, format!("{what} \"{}\"{hint}", path.join(".")));
    }

    fn problem(&mut self, line: usize, message: String) {
        self.problems.push(Problem::new(format!("{}:{line}", self.file), message));
    }
}

/// The field that names each entry of a list of tables; `None` where there is no such list.
fn name_field(path: &[String]) -> Option<&'static str> {
    match path {
        [tuner, listener] if tuner == "tuner" && listener == "listener" => Some("listen"),
        [pools, _, members] if pools == "pools" && members == "members" => Some("name"),
        _ => None,
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Quoted(text.to_string()),
        DeValue::Integer(number) => Raw::Integer(number.to_string()),
        DeValue::Boolean(value) => Raw::Bool(*value),
        DeValue::Array(items) => {
            let words: Option<Vec<String>> =
                items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
            words.map_or(Raw::Other("array"), Raw::List)
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Raw::Other(value.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse("governor.toml", text).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_misspelt_key_or_section_names_line_and_nearest_name() {
        let all = problems("[node]\nmax_paralel = 5\n\n[pool.acme]\nfair_share = 80\n");
        assert_eq!(
            all,
            [
                "governor.toml:2: unknown key \"node.max_paralel\": did you mean \"max_parked\"?",
                "governor.toml:4: unknown key \"pool\": did you mean \"pools\"?",
            ]
        );
    }

    #[test]
    fn members_can_be_written_both_ways() {
        let layer =
            parse("f", "[pools.a]\n[[pools.a.members]]\nname = \"x\"\nslots = 4\n[pools.b.members.y]\nslots = 5\n")
                .unwrap();
        let keys: Vec<String> = layer.entries.iter().map(|(path, ..)| path.join(".")).collect();
        assert_eq!(keys, ["pools.a.members.x.slots", "pools.b.members.y.slots"]);
        assert_eq!(layer.names.len(), 4);
    }

    #[test]
    fn listeners_of_the_tuner_are_named_by_where_they_listen() {
        let text =
            "[[tuner.listener]]\nlisten = \"0.0.0.0:443\"\nmode = \"enforce\"\n[tuner.listener.\":80\"]\nmax = 9\n";
        let layer = parse("f", text);
        // TOML knows no table that is both.
        assert!(layer.is_err());
        let layer = parse("f", "[[tuner.listener]]\nlisten = \"0.0.0.0:443\"\nmode = \"enforce\"\n").unwrap();
        assert_eq!(layer.entries[0].0, ["tuner", "listener", "0.0.0.0:443", "mode"]);
        assert!(problems("[[tuner.listener]]\nmax = 9\n")[0].contains("needs listen = "));
    }

    #[test]
    fn a_member_named_twice_or_not_at_all_is_a_problem() {
        let all =
            problems("[[pools.a.members]]\nname = \"x\"\n[[pools.a.members]]\nname = \"x\"\n[[pools.a.members]]\n");
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("stands twice") && all[1].contains("needs name"), "{all:?}");
    }

    #[test]
    fn a_name_that_no_frame_holds_names_its_length_and_line() {
        let long = "n".repeat(129);
        let all = problems(&format!("[pools.{long}]\n[[pools.a.members]]\nname = \"{long}\"\n[cgroups.\"/{long}\"]\n"));
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|problem| problem.contains("has 129 bytes, expected 1 to 128")), "{all:?}");
        assert!(problems("[[pools.a.members]]\nname = \"\"\n")[0].contains("has 0 bytes"));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let all = problems("[node]\ncap = = 3\n");
        assert!(all[0].starts_with("governor.toml:2: "), "{all:?}");
    }
}
