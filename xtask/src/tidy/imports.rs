//! How files import: one block, in the order that rustfmt gives it.

use super::{assert_none, sources};

#[test]
fn imports_are_one_block() {
    let split: Vec<String> = sources()
        .iter()
        .filter_map(|source| second_block(&source.text).map(|line| format!("{}:{line}", source.path)))
        .collect();
    assert_none(&split, "imports that are split by blank lines: one block, which rustfmt sorts");
}

/// The line where imports go on after blank lines.
fn second_block(text: &str) -> Option<usize> {
    let mut after_import = false;
    let mut after_blank = false;
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let begins = line.starts_with("use ");
        if begins && after_import && after_blank {
            return Some(index + 1);
        }
        if begins || open {
            open = !line.trim_end().ends_with(';');
            (after_import, after_blank) = (true, false);
        } else if line.trim().is_empty() {
            after_blank = true;
        } else {
            (after_import, after_blank) = (false, false);
        }
    }
    None
}

#[test]
fn a_second_block_is_found_and_a_list_over_lines_is_none() {
    assert_eq!(second_block("use a::b;\nuse c::{\n    d,\n};\n\nfn e() {}\n"), None);
    assert_eq!(second_block("mod a;\n\nuse a::{\n    b,\n};\n\nuse c::d;\n"), Some(7));
}
