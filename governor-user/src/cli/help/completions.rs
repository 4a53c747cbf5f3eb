//! `governorctl completions`: the script of a shell, and the answers it asks for while the user types. The script calls
//! this binary back with [`ASKED_BY`] in its environment, so that values come from the daemon as it is then.

use crate::cli::answer::{Answer, Error};
use crate::cli::help::command::command;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};

/// Variable by which a script asks for the words that fit; its value is the shell.
const ASKED_BY: &str = "GOVERNORCTL_COMPLETE";

/// Answers a script and ends the process, where a script asks. Called before anything is written.
pub(in crate::cli) fn answer_shell() {
    CompleteEnv::with_factory(command).var(ASKED_BY).complete();
}

/// Writes the script; asks no daemon.
pub(in crate::cli) fn run(shell: clap_complete::Shell) -> Result<Answer, Error> {
    let completer: &dyn EnvCompleter = match shell {
        clap_complete::Shell::Elvish => &Elvish,
        clap_complete::Shell::Fish => &Fish,
        clap_complete::Shell::PowerShell => &Powershell,
        clap_complete::Shell::Zsh => &Zsh,
        clap_complete::Shell::Bash | _ => &Bash,
    };
    let mut script = Vec::new();
    completer
        .write_registration(ASKED_BY, "governorctl", "governorctl", "governorctl", &mut script)
        .map_err(|source| Error::Local { doing: "write the completion script", source })?;
    Ok(Answer::ok(String::from_utf8_lossy(&script).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_gets_a_script_of_its_own_that_asks_this_program() {
        let scripts: Vec<String> =
            clap_complete::Shell::value_variants().iter().map(|shell| run(*shell).unwrap().text).collect();
        for script in &scripts {
            assert!(script.contains(ASKED_BY) && script.contains("governorctl"), "{script}");
            assert_eq!(scripts.iter().filter(|other| *other == script).count(), 1, "{script}");
        }
    }
}
