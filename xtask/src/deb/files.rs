//! What is in the package: binaries, unit, configuration, completions, manual, documents, and dpkg's control files.

use crate::exec;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files of the repository, where they go, and whether they are executable.
const COPIED: [(&str, &str); 7] = [
    ("governor-user/dist/governor.toml", "etc/governor/governor.toml"),
    ("governor-user/dist/governord.service", "usr/lib/systemd/system/governord.service"),
    ("governor-user/dist/alerts.yml", "usr/share/doc/governor/examples/alerts.yml"),
    ("governor-user/dist/CONFIGURATION.md", "usr/share/doc/governor/CONFIGURATION.md"),
    ("governor-user/src/metrics/METRICS.md", "usr/share/doc/governor/METRICS.md"),
    ("governor-common/src/wire/PROTOCOL.md", "usr/share/doc/governor/PROTOCOL.md"),
    ("README.md", "usr/share/doc/governor/README.md"),
];

/// Completion scripts by shell.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/governorctl"),
    ("zsh", "usr/share/zsh/vendor-completions/_governorctl"),
    ("fish", "usr/share/fish/vendor_completions.d/governorctl.fish"),
];

/// What dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Puts every file that is installed below `tree`.
pub(super) fn assemble(tree: &Path, binaries: &Path) -> Result<()> {
    let root = exec::root();
    for (from, to) in COPIED {
        put(tree, to, 0o644, &fs::read(root.join(from)).with_context(|| format!("cannot read {from}"))?)?;
    }
    put(tree, "usr/share/doc/governor/copyright", 0o644, copyright(&root)?.as_bytes())?;
    put(tree, "usr/share/doc/governor/changelog.gz", 0o644, &zipped(&fs::read(root.join("CHANGELOG.md"))?)?)?;
    for (program, folder) in [("governord", "usr/sbin"), ("governorctl", "usr/bin")] {
        let place = tree.join(folder).join(program);
        fs::create_dir_all(tree.join(folder))?;
        exec::run(Command::new("strip").arg("-o").arg(&place).arg(binaries.join(program)))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
    }
    let governorctl = binaries.join("governorctl");
    for (shell, to) in COMPLETIONS {
        let script = exec::output(Command::new(&governorctl).args(["completions", shell]))?;
        put(tree, to, 0o644, script.as_bytes())?;
    }
    let page = exec::output(Command::new(binaries.join("governord")).arg("--print-manual"))?;
    put(tree, "usr/share/man/man8/governord.8.gz", 0o644, &zipped(page.as_bytes())?)?;
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    exec::output(Command::new(&governorctl).arg("manual").arg(&pages))?;
    for entry in fs::read_dir(&pages)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a page has a plain name")?;
        put(tree, &format!("usr/share/man/man1/{name}.gz"), 0o644, &zipped(&fs::read(&path)?)?)?;
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Puts dpkg's control files below `tree`, which is complete otherwise.
pub(super) fn control(tree: &Path, architecture: &str) -> Result<()> {
    let root = exec::root();
    let glibc = ["usr/sbin/governord", "usr/bin/governorctl"]
        .into_iter()
        .map(|program| Ok(newest_glibc(&fs::read(tree.join(program))?)))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .max()
        .flatten()
        .context("the binaries name no version of the C library")?;
    let size: u64 = size_of_tree(tree)?.div_ceil(1024);
    let text = format!(
        "Package: governor\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: The governor developers <governor@example.org>\nInstalled-Size: {size}\n\
         Depends: libc6 (>= 2.{glibc}), libgcc-s1\n\
         Description: fair admission and accept-queue tuning for gateway nodes\n \
         governord keeps one bursty client from starving the rest: it shares upstream slots\n \
         among keys, and shows and mends the queueing that happens before a proxy sees a\n \
         connection. It observes by eBPF, and decides nothing until it is told to enforce.\n",
        version = env!("CARGO_PKG_VERSION"),
    );
    put(tree, "DEBIAN/control", 0o644, text.as_bytes())?;
    put(tree, "DEBIAN/conffiles", 0o644, b"/etc/governor/governor.toml\n")?;
    for script in SCRIPTS {
        put(tree, &format!("DEBIAN/{script}"), 0o755, &fs::read(root.join("governor-user/dist/debian").join(script))?)?;
    }
    Ok(())
}

fn put(tree: &Path, to: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let place = tree.join(to);
    for folder in place.ancestors().skip(1).take_while(|folder| folder.starts_with(tree)) {
        if folder.exists() {
            break;
        }
        fs::create_dir_all(folder)?;
    }
    fs::write(&place, bytes).with_context(|| format!("cannot write {}", place.display()))?;
    fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn zipped(bytes: &[u8]) -> Result<Vec<u8>> {
    use std::io::Write;
    let mut gzip =
        Command::new("gzip").args(["-9n"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no gzip")?;
    let mut input = gzip.stdin.take().context("stdin is piped")?;
    let owned = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&owned));
    let output = gzip.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    anyhow::ensure!(output.status.success(), "gzip ended with {}", output.status);
    Ok(output.stdout)
}

fn copyright(root: &Path) -> Result<String> {
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let indented: String =
        mit.lines().map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }).collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: governor\n\n\
         Files: *\nCopyright: The governor developers\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{indented}\n\
         License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// The newest minor version of glibc 2 whose symbols a binary asks for.
fn newest_glibc(binary: &[u8]) -> Option<u32> {
    const NAME: &[u8] = b"GLIBC_2.";
    let after =
        binary.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).map(|(at, _)| at + NAME.len());
    let minor = |at: usize| {
        let digits: Vec<u8> = binary[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).ok()?.parse::<u32>().ok()
    };
    after.filter_map(minor).max()
}

fn size_of_tree(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        sum += if kind.is_dir() { size_of_tree(&entry.path())? } else { kind.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_version_is_what_the_package_depends_on() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(newest_glibc(b"static"), None);
    }
}
