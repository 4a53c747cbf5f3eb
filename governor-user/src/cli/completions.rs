//! `governorctl completions`: the script of a shell, from the command line itself.

use super::answer::Answer;
use super::args::Args;
use clap::CommandFactory;

/// Writes the script; asks no daemon.
pub(super) fn run(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "governorctl", &mut script);
    Answer::ok(String::from_utf8_lossy(&script).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_subcommands() {
        for shell in clap_complete::Shell::value_variants() {
            let script = run(*shell).text;
            assert!(script.contains("listeners") && script.contains("bypass"), "{shell}");
        }
    }
}
