//! Tracing programs of others that are attached when ours come: they may sit on the same hooks, and are named so that a
//! cost or a clash can be put to the right door. Only looks and touches none of them.

use aya::programs::{
    links::{LinkInfo, LinkType},
    loaded_links, loaded_programs,
};
use governor_observation::HookView;
use std::collections::{BTreeMap, BTreeSet};

/// Programs named at most; the rest is a number.
const MOST_NAMED: usize = 16;

/// One row for each attached tracing program, called before our own are attached. Empty where `bpf()` does not list
/// them, which needs `CAP_SYS_ADMIN`.
#[must_use]
pub fn tracing_programs() -> Vec<HookView> {
    // A link or program that ends meanwhile is an error of its own entry only.
    let attached: BTreeSet<u32> =
        loaded_links().filter_map(Result::ok).filter(is_tracing).map(|link| link.program_id()).collect();
    if attached.is_empty() {
        return Vec::new();
    }
    let names: BTreeMap<u32, String> = loaded_programs()
        .filter_map(Result::ok)
        .map(|program| (program.id(), program.name_as_str().unwrap_or_default().to_owned()))
        .collect();
    rows(attached.iter().map(|id| (*id, names.get(id).map_or("", String::as_str))))
}

fn is_tracing(link: &LinkInfo) -> bool {
    matches!(link.link_type(), Ok(LinkType::RawTracePoint | LinkType::Tracing))
}

fn rows<'a>(programs: impl ExactSizeIterator<Item = (u32, &'a str)>) -> Vec<HookView> {
    let row = |hook: String, note: &str| HookView {
        purpose: "of somebody else".to_owned(),
        hook,
        active: true,
        note: note.to_owned(),
        ..HookView::default()
    };
    let more = programs.len().saturating_sub(MOST_NAMED);
    let mut rows: Vec<HookView> = programs
        .take(MOST_NAMED)
        .map(|(id, name)| row(format!("program {id} {name}").trim_end().to_owned(), "was attached before; left alone"))
        .collect();
    if more > 0 {
        rows.push(row(format!("{more} more programs"), "were attached before; left alone"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_up_to_a_bound() {
        let few = rows([(7, "tcp_conn"), (9, "")].into_iter());
        assert_eq!(few.iter().map(|row| row.hook.as_str()).collect::<Vec<_>>(), ["program 7 tcp_conn", "program 9"]);
        let many: Vec<(u32, &str)> = (0..20).map(|id| (id, "x")).collect();
        let many = rows(many.into_iter());
        assert_eq!((many.len(), many[MOST_NAMED].hook.as_str()), (MOST_NAMED + 1, "4 more programs"));
    }
}
