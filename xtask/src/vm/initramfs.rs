//! What a test machine consists of: an initramfs with busybox, the tests, the programs they compare with, and the
//! modules that sock_diag needs. Two archives: one for all machines, one for a kernel.

use super::cpio::Archive;
use super::kernel::Kernel;
use super::program::Program;
use super::series::{Series, Skips};
use crate::exec;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First program of the machine.
const INIT: &[u8] = include_bytes!("init.sh");

/// Where the tests lie in the machine, with the same folders above them as in a target folder.
const TESTS: &str = "/tests/debug/deps/kernel";

/// Programs of this machine that the tests call.
const TOOLS: [&str; 4] = ["ip", "ss", "nstat", "unshare"];

/// In the order they are loaded. One that is missing is built in, or the kernel has no such thing.
const MODULES: [&str; 5] = ["inet_diag", "tcp_diag", "mptcp_diag", "veth", "sch_netem"];

/// The part that all machines share. `scratch` is a folder for what is made on the way.
pub(super) fn common(busybox: &Path, program: &Program, scratch: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file("/init", INIT);
    archive.file("/bin/busybox", &read(busybox)?);
    let folder = Path::new(TESTS).parent().and_then(Path::parent).unwrap_or_else(|| Path::new("/"));
    let beside = program.beside.iter().map(|path| (folder.join(path.file_name().unwrap_or_default()), path.clone()));
    let ours = [(PathBuf::from(TESTS), program.tests.clone())].into_iter().chain(beside);
    let tools = TOOLS.iter().filter_map(|tool| Some((Path::new("/tools").join(tool), exec::find(tool)?)));
    let mut libraries = BTreeSet::new();
    for (place, path) in ours.chain(tools) {
        archive.file(&place.to_string_lossy(), &stripped(&path, scratch)?);
        libraries.extend(needed(&exec::output(Command::new("ldd").arg(&path))?));
    }
    for library in libraries {
        archive.file(&library.to_string_lossy(), &read(&library)?);
    }
    Ok(archive.finish())
}

/// The part of one kernel: its modules, and how the tests are called. `arguments` go to the test runner.
pub(super) fn of_kernel(kernel: &Kernel, series: &Series, arguments: &[String]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file("/settings", settings(series, arguments).as_bytes());
    modules(&mut archive, kernel, &MODULES)?;
    Ok(archive.finish())
}

/// All of a machine that finds the rest on its disk: busybox, an init, and modules of the kernel in the order they are loaded.
pub(super) fn of_disk(busybox: &Path, init: &[u8], kernel: &Kernel, names: &[&str]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file("/init", init);
    archive.file("/bin/busybox", &read(busybox)?);
    modules(&mut archive, kernel, names)?;
    Ok(archive.finish())
}

fn modules(archive: &mut Archive, kernel: &Kernel, names: &[&str]) -> Result<()> {
    archive.folder("/modules");
    for (index, path) in names.iter().filter_map(|name| kernel.module(name)).enumerate() {
        // Numbered, because the shell loads them in the order of their names.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("/modules/{index:02}-{name}"), &read(&path)?);
    }
    Ok(())
}

/// Variables of the shell that runs the tests.
fn settings(series: &Series, arguments: &[String]) -> String {
    let required = match series.skips {
        Skips::Fail => "export GOVERNOR_REQUIRE_KERNEL=1\n",
        Skips::Expected => "",
    };
    // A single quote would end the word; no test has one in its name.
    let arguments = arguments.join(" ").replace('\'', "");
    format!("tests={TESTS}\narguments='{arguments}'\n{required}")
}

/// A program without its debug information, which is most of it, where the system can do that.
fn stripped(path: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let copy = scratch.join("stripped");
    let strip = Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(path).output();
    let done = strip.is_ok_and(|output| output.status.success());
    read(if done { &copy } else { path })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Paths in the output of `ldd`: `name => path (address)`, and the loader as `path (address)`.
fn needed(ldd: &str) -> impl Iterator<Item = PathBuf> {
    ldd.lines()
        .filter_map(|line| {
            let path = line.split_once("=>").map_or(line, |(_, path)| path);
            path.split_whitespace().next().filter(|path| path.starts_with('/'))
        })
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::super::series::ALL;
    use super::*;

    #[test]
    fn the_shell_gets_what_the_series_expects() {
        assert_eq!(
            settings(&ALL[0], &["a".into(), "b".into()]),
            "tests=/tests/debug/deps/kernel\narguments='a b'\nexport GOVERNOR_REQUIRE_KERNEL=1\n"
        );
        assert!(!settings(&ALL[3], &[]).contains("REQUIRE"));
    }

    #[test]
    fn libraries_and_loader_are_found_in_what_ldd_says() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                   \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths: Vec<PathBuf> = needed(ldd).collect();
        assert_eq!(paths, [Path::new("/lib/x86_64-linux-gnu/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]);
        assert_eq!(needed("\tnot a dynamic executable\n").count(), 0);
    }
}
