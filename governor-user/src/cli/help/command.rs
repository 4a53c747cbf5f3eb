//! The command line as clap sees it: that of `args` with examples in the help of each subcommand and with values that a
//! shell can complete. Help, parsing, completion and the manual all start from here.

use crate::cli::args::Args;
use crate::cli::asking::candidates;
use crate::cli::help::examples;
use clap::{Arg, Command, CommandFactory};

/// The whole command line.
pub(in crate::cli) fn command() -> Command {
    let command = Args::command();
    let names: Vec<String> = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let help = help_lines(examples::of(&name));
        command.mut_subcommand(name, |subcommand| {
            let subcommand = if help.is_empty() { subcommand } else { subcommand.after_help(help) };
            with_candidates(subcommand)
        })
    })
}

fn help_lines(examples: &[examples::Example]) -> String {
    let lines: Vec<String> = examples.iter().map(|(line, what)| format!("  {line}\n      {what}")).collect();
    if lines.is_empty() { String::new() } else { format!("Examples:\n{}", lines.join("\n")) }
}

/// Every argument whose values the daemon knows, of a subcommand and of those below it.
fn with_candidates(subcommand: Command) -> Command {
    let name = subcommand.get_name().to_owned();
    let subcommand = subcommand.mut_args(|arg: Arg| match candidates::of(&name, arg.get_id().as_str()) {
        Some(completer) => arg.add(completer),
        None => arg,
    });
    subcommand.mut_subcommands(with_candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_of_a_subcommand_ends_with_its_examples() {
        let mut bypass = command().find_subcommand("bypass").unwrap().clone();
        let help = bypass.render_long_help().to_string();
        assert!(help.contains("Examples:\n  governorctl bypass on --for 30m\n      let every request"), "{help}");
    }
}
