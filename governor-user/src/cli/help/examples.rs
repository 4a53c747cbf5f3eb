//! Examples of each subcommand, for `--help` and the manual. Data only; a test parses every one of them.

/// One command line and what it is good for.
pub(in crate::cli) type Example = (&'static str, &'static str);

/// By subcommand.
pub(in crate::cli) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "refusals",
        &[
            ("governorctl refusals --since 10m", "how many were refused for which reason"),
            ("governorctl refusals --key batch --reason fair_share", "those of one key for one reason"),
        ],
    ),
    (
        "status",
        &[
            ("governorctl status", "what is wrong now, and the next command"),
            ("governorctl status --format json | jq .findings", "the same for a program"),
        ],
    ),
    (
        "listeners",
        &[
            ("governorctl listeners", "the worst first, with the process that holds it"),
            ("governorctl listeners --closed", "connections that were lost when a listener closed"),
        ],
    ),
    ("cgroups", &[("governorctl cgroups", "open connections of each service")]),
    ("namespaces", &[("governorctl namespaces", "what each network namespace drops, and what that means")]),
    ("pools", &[("governorctl pools --members", "capacity, waiting requests and the members of each pool")]),
    (
        "members",
        &[
            ("governorctl members", "which members take no requests, since when, and who took them out"),
            ("governorctl members --pool chat --format json", "the same of one pool for a program"),
        ],
    ),
    (
        "member",
        &[
            ("governorctl member chat/acct-01 up", "end a cool-down that a wrong report began"),
            ("governorctl member chat/acct-01 cool --for 30m", "give it no new request for half an hour"),
            ("governorctl member chat/acct-01 drain --reason \"runaway job\"", "take it out until undrained"),
            ("governorctl member chat/acct-01 undrain", "put it back"),
        ],
    ),
    (
        "keys",
        &[
            ("governorctl keys --pool chat", "which keys hold the slots of a pool"),
            ("governorctl keys --orgs", "the same by org, with class and tier"),
        ],
    ),
    (
        "key",
        &[
            ("governorctl key batch --cap 5 --for 1h --reason \"runaway job\"", "cap a key for an hour"),
            ("governorctl key batch --floor 2", "guarantee it two slots as well"),
            ("governorctl key batch --unset cap", "remove the cap, keep the rest"),
            ("governorctl key batch --clear", "remove all that was set"),
            ("governorctl key --hash < key.txt", "the hash of a raw key, with the secret in NODE_SECRET"),
        ],
    ),
    ("events", &[("governorctl events --last 24h", "what changed in the last day, and by whom")]),
    ("leases", &[("governorctl leases --pool chat --idle 60s", "leases that have moved no byte for a minute")]),
    (
        "explain",
        &[
            ("governorctl explain d-0001000000000007", "why a request was refused: the id is in x-governor-decision"),
            ("governorctl explain l-0001000000000004", "for whom a lease is held, and until when"),
            ("governorctl explain listener :443", "what is wrong with a listener"),
        ],
    ),
    ("advise", &[("governorctl advise --last 1h", "replay the last hour under other fair-share settings")]),
    ("set", &[("governorctl set pools.chat.fair_share_mode enforce", "change a setting at run time")]),
    ("unset", &[("governorctl unset pools.chat.fair_share_mode", "go back to the file's value")]),
    ("reload", &[("governorctl reload", "apply an edited configuration file, or show what is wrong in it")]),
    (
        "bypass",
        &[
            ("governorctl bypass on --for 30m", "let every request pass for half an hour"),
            ("governorctl bypass off", "end that now"),
        ],
    ),
    (
        "drain",
        &[
            ("governorctl drain --wait", "refuse new requests and wait until nothing runs, e.g. before a reboot"),
            ("governorctl drain --undo", "grant requests again"),
        ],
    ),
    (
        "tune",
        &[
            ("governorctl tune --dry-run", "what the tuner would do about each listener"),
            (
                "governorctl tune enforce 0.0.0.0:443",
                "raise the backlog of this listener where that helps, and of no other",
            ),
            ("governorctl tune restore :443", "give it the backlog back that its owner asked for, and leave it alone"),
            ("governorctl tune resume :443", "tune a listener again that is left alone"),
        ],
    ),
    ("config", &[("governorctl config --origin", "every setting and the layer it comes from")]),
    (
        "doctor",
        &[
            ("governorctl doctor", "what works on this machine, what does not, and what to do"),
            ("governorctl doctor --clean", "remove what a governord that is gone left behind"),
        ],
    ),
    ("completions", &[("governorctl completions bash > /etc/bash_completion.d/governorctl", "for all users")]),
];

/// The examples of a subcommand as lines of help; empty where there are none.
pub(in crate::cli) fn of(subcommand: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == subcommand).map_or(&[], |(_, examples)| examples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help::command::command;

    #[test]
    fn every_subcommand_has_examples_that_parse() {
        for subcommand in command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            assert!(!of(subcommand.get_name()).is_empty(), "{} has no example", subcommand.get_name());
        }
        for (name, examples) in EXAMPLES {
            for (line, _) in *examples {
                let line =
                    line.split(" | ").next().unwrap().split(['<', '>']).next().unwrap().replace("runaway job", "why");
                let words = line.split_whitespace().map(|word| word.trim_matches('"'));
                let parsed = command().try_get_matches_from(words);
                let parsed = parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(parsed.subcommand_name(), Some(*name), "{line}");
            }
        }
    }
}
