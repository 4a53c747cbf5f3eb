//! Words that comments of the product avoid: a reader who has never met the authors looks for the field's.

use super::{assert_none, sources};

/// What not to write, and what to write instead.
const AVOIDED: [(&str, &str); 12] = [
    ("whoever", "the process, thread, caller or peer that is meant"),
    ("somebody", "the process, operator or request that is meant"),
    ("nobody", "no process, no request, ..."),
    ("everybody", "every request, every principal, ..."),
    ("told", "notified, reported, configured, distinguished"),
    ("heed", "apply"),
    ("in vain", "failed, without success"),
    ("the life before", "the previous run"),
    ("an earlier life", "an earlier run"),
    ("the last life", "the previous run"),
    ("for company", "batched"),
    ("stands still", "is stalled, is unchanged"),
];

#[test]
fn comments_use_the_words_of_the_field() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| is_product(&source.path)) {
        for (number, line) in source.code() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            found.extend(
                avoided(comment)
                    .map(|(word, instead)| format!("{}:{number}: \"{word}\": write {instead}", source.path)),
            );
        }
    }
    assert_none(&found, "words of our own in a comment");
}

fn is_product(path: &str) -> bool {
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/") || path.ends_with("tidy/words.rs");
    path.contains("/src/") && !is_test
}

/// The avoided words in a text, as whole words in any case.
fn avoided(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let plain: String = text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
    let padded = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    AVOIDED.into_iter().filter(move |(word, _)| padded.contains(&format!(" {word} ")))
}

#[test]
fn a_word_is_found_whole_and_in_any_case() {
    let words = |text| avoided(text).map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(words(" Whoever asks, waits for company."), ["whoever", "for company"]);
    assert_eq!(words(" The stolden word and nobodys."), [""; 0]);
}
