//! `governorctl manual`: its manual, a page a subcommand, from the command line itself. For packages.

use super::answer::{Answer, Error};
use super::args::Args;
use clap::CommandFactory;
use std::path::Path;

/// Writes `governorctl.1` and a page for each subcommand; asks no daemon.
pub(super) fn run(folder: &Path) -> Result<Answer, Error> {
    clap_mangen::generate_to(Args::command(), folder)
        .map_err(|source| Error::Local { doing: "write the manual", source })?;
    Ok(Answer::ok(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
        for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.path().join(format!("governorctl-{}.1", command.get_name()));
            assert!(page.exists(), "{}", page.display());
        }
    }
}
