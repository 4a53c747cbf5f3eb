//! apt with sources, lists and caches of its own. Nothing of the machine's apt is changed; its proxy and certificate
//! settings apply, and its list of installed packages decides which libraries need not be fetched.

use super::archive::Archives;
use crate::exec;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A private apt in a folder.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Sets up `folder` for these suites of Debian and fetches their lists.
    ///
    /// A suite that is not there is no failure here: apt goes on with the others, and what is missing shows when a
    /// package is asked for. What apt complained about is the second value.
    pub(crate) fn with(folder: &Path, archives: &Archives, suites: &[&str]) -> Result<(Self, Option<String>)> {
        for part in ["lists/partial", "cache/archives/partial", "sources"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        }
        let sources = folder.join("sources/kernels.sources");
        fs::write(&sources, stanzas(archives, suites))
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let apt = Self { folder: folder.to_owned() };
        // Without the option apt calls a list that it could not fetch a warning and ends as if all were well.
        let update = ["update", "--quiet", "-o", "APT::Update::Error-Mode=any"];
        let complaint = exec::output(apt.command("apt-get").args(update)).err();
        Ok((apt, complaint.map(|error| errors(&format!("{error:#}")))))
    }

    /// Names of all packages that begin with `prefix`, one a line.
    pub(crate) fn names(&self, prefix: &str) -> Result<String> {
        exec::output(self.command("apt-cache").args(["pkgnames", prefix]))
    }

    /// The table of versions of these packages.
    pub(crate) fn versions(&self, packages: &[&str]) -> Result<String> {
        if packages.is_empty() {
            return Ok(String::new());
        }
        exec::output(self.command("apt-cache").arg("madison").args(packages))
    }

    /// Downloads and unpacks packages, given as `name` or `name=version`, into `place`.
    pub(crate) fn unpack(&self, packages: &[String], place: &Path) -> Result<()> {
        self.fetch(place, |apt, archives| {
            let mut command = apt.command("apt-get");
            command.arg("download").args(packages).current_dir(archives);
            command
        })
    }

    /// The same for packages together with everything they depend on that is not installed here.
    pub(crate) fn unpack_with_dependencies(&self, packages: &[&str], place: &Path) -> Result<()> {
        self.fetch(place, |apt, archives| {
            let mut into = std::ffi::OsString::from("Dir::Cache::archives=");
            into.push(archives);
            let mut command = apt.command("apt-get");
            command.args(["install", "--download-only", "--yes", "--no-install-recommends", "-o"]).arg(into);
            command.args(packages);
            command
        })
    }

    /// `place` appears only when it is complete.
    fn fetch(&self, place: &Path, download: impl FnOnce(&Self, &Path) -> Command) -> Result<()> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let fresh = place.with_file_name(name);
        let archives = fresh.join("archives");
        for folder in [&fresh, &place.to_owned()] {
            if folder.exists() {
                fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
            }
        }
        fs::create_dir_all(archives.join("partial"))?;
        exec::output(&mut download(self, &archives))?;
        for entry in fs::read_dir(&archives)? {
            let archive = entry?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                exec::output(Command::new("dpkg").arg("-x").arg(&archive).arg(&fresh))?;
            }
        }
        fs::remove_dir_all(&archives)?;
        fs::rename(&fresh, place).with_context(|| format!("cannot move a package to {}", place.display()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, part) in
            [("Dir::Etc::sourceparts", "sources"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
        {
            let mut value = std::ffi::OsString::from(format!("{option}="));
            value.push(self.folder.join(part));
            command.arg("-o").arg(value);
        }
        // Nothing is installed, so the machine's locks are not needed, nor the user that may not write here.
        for option in [
            "Dir::Etc::sourcelist=/dev/null",
            "Acquire::Languages=none",
            "APT::Sandbox::User=root",
            "Debug::NoLocking=1",
        ] {
            command.args(["-o", option]);
        }
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// What apt calls errors in its output, on one line; all of it if it calls nothing so.
fn errors(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter_map(|line| line.trim().strip_prefix("E: ")).collect();
    if lines.is_empty() { output.to_owned() } else { lines.join("; ") }
}

/// A source for each suite whose archive is known.
fn stanzas(archives: &Archives, suites: &[&str]) -> String {
    let mut text = String::new();
    for suite in suites {
        if let Some(archive) = archives.of(suite) {
            let keys = archive.signed_by.as_ref().map_or_else(String::new, |keys| format!("Signed-By: {keys}\n"));
            // Only the package lists: what else is offered (icons, descriptions) is as large again.
            let written = write!(
                text,
                "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\nTargets: Packages\n{keys}\n",
                archive.uri
            );
            written.expect("a string grows");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::archive::Archive;
    use super::*;

    #[test]
    fn errors_of_apt_become_one_line() {
        let output = "\"apt-get\" ended with 100:\n  W: old\n  E: Failed to fetch x\n  E: Some index files failed";
        assert_eq!(errors(output), "Failed to fetch x; Some index files failed");
        assert_eq!(errors("cannot start"), "cannot start");
    }

    #[test]
    fn a_suite_whose_archive_is_unknown_has_no_source() {
        let main = Archive { uri: "http://mirror.example/debian".into(), signed_by: Some("/k.gpg".into()) };
        let text = stanzas(&Archives { main, security: None }, &["sid", "trixie-security"]);
        assert_eq!(
            text,
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: sid\nComponents: main\nTargets: Packages\n\
             Signed-By: /k.gpg\n\n"
        );
    }
}
