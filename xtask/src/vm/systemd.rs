//! `cargo xtask vm --systemd`: the package as a user has it: installed, used, restarted and purged under a real systemd, in a
//! minimal Debian on a disk of its own. What is done there is `systemd/trial.sh`; the disk is made without mounting anything.

use super::build_folder;
use super::emulator::{End, Machine};
use super::initramfs;
use super::machine;
use super::progress;
use super::ready::Ready;
use super::say;
use super::series::{self, Series};
use super::timed;
use crate::bare::{debootstrap, remove};
use crate::deb;
use crate::exec;
use crate::setup;
use anyhow::{Context, Result, bail};
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The kernel of the machine: Debian's own of the release that most run.
const SERIES: &Series = &series::ALL[0];

/// What an ordinary minimal Debian has that debootstrap's does not.
const PACKAGES: &str = "dbus,iproute2,kmod,systemd,systemd-sysv";

/// First program of the machine.
const INIT: &[u8] = include_bytes!("systemd/init.sh");

/// What is done in the machine, and the unit that does it.
const TRIAL: &str = include_str!("systemd/trial.sh");
const TRIAL_UNIT: &str = include_str!("systemd/trial.service");

/// For the disk, and for what sock_diag needs; one that is missing is built in.
const MODULES: [&str; 13] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
    "inet_diag",
    "tcp_diag",
    "mptcp_diag",
];

/// Units that would only use the console or the processor.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "getty.target",
    "systemd-timesyncd.service",
    "e2scrub_all.timer",
];

/// Size of the disk; blocks that nothing is written to take no space.
const DISK: &str = "2G";

/// What the trial's lines begin with, and its last one.
const LINE: &str = "MACHINE ";
const PASSED: &str = "MACHINE PASSED";

/// Makes the machine, runs the trial and shows its lines.
///
/// # Errors
/// The machine cannot be made here, or the trial fails.
pub(super) fn run(update: bool, processors: NonZeroUsize, patience: Duration) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("making a minimal Debian needs root");
    }
    setup::ensure()?;
    setup::ensure_full_programs()?;
    let ready = Ready::for_series(&[SERIES], update)?;
    let kernel = match ready.kernels.first() {
        Some((_, Ok(kernel))) => kernel,
        Some((_, Err(reason))) => bail!("no kernel {}: {reason}", SERIES.name),
        None => bail!("no kernel {} was looked for", SERIES.name),
    };
    let place = build_folder()?.join("vm/systemd");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let _lock = setup::lock(&place.join("lock"))?;
    let package = timed(format_args!("build the package"), || deb::build(true))?;
    let disk = timed(format_args!("make the disk"), || disk(&place, &package))?;
    let initramfs = place.join("initramfs");
    fs::write(&initramfs, initramfs::of_disk(&ready.emulator.busybox, INIT, kernel, &MODULES)?)?;
    let console = place.join("console.log");
    progress(format_args!("boot Debian {} with systemd ({}) …", setup::release()?, kernel.version));
    let started = Instant::now();
    let machine = Machine { kernel: &kernel.image, initramfs: &initramfs, disk: Some(&disk), processors, patience };
    let end = ready.emulator.run(machine, &console)?;
    let text = fs::read(&console).with_context(|| format!("cannot read {}", console.display()))?;
    let text = String::from_utf8_lossy(&text).replace('\r', "");
    for line in text.lines().filter_map(|line| line.strip_prefix(LINE)) {
        say(format_args!("systemd: {line}"));
    }
    progress(format_args!("the machine ran for {:.0} s", started.elapsed().as_secs_f64()));
    if end == End::TimedOut || !has_passed(&text) {
        machine::show(&text, &console, end);
        bail!("the package does not pass its trial under systemd");
    }
    remove(&disk)
}

/// Whether the trial came to its end and nothing failed on the way.
fn has_passed(console: &str) -> bool {
    let mut lines = console.lines().filter(|line| line.starts_with(LINE));
    lines.clone().all(|line| !line.starts_with("MACHINE FAILED")) && lines.next_back() == Some(PASSED)
}

/// The image of a disk with a minimal Debian, the package and the trial.
fn disk(place: &Path, package: &Path) -> Result<PathBuf> {
    let root = place.join("root");
    remove(&root)?;
    exec::output(Command::new("cp").arg("--archive").arg(base(place)?).arg(&root))?;
    let trial = root.join("trial");
    fs::create_dir(&trial)?;
    fs::copy(package, trial.join("governor.deb"))?;
    let field = deb::binaries(true)?.join(deb::FIELD);
    exec::output(Command::new("strip").arg("-o").arg(trial.join(deb::FIELD)).arg(field))?;
    fs::write(trial.join("trial.sh"), TRIAL)?;
    for program in ["trial.sh", deb::FIELD] {
        fs::set_permissions(trial.join(program), fs::Permissions::from_mode(0o755))?;
    }
    let units = root.join("etc/systemd/system");
    fs::write(units.join("trial.service"), TRIAL_UNIT)?;
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    symlink("../trial.service", units.join("multi-user.target.wants/trial.service"))?;
    for unit in MASKED {
        remove(&units.join(unit))?;
        symlink("/dev/null", units.join(unit))?;
    }
    fs::write(root.join("etc/hostname"), "governor-trial\n")?;
    // Without one systemd takes the start for the first and sets the machine up again.
    fs::write(root.join("etc/machine-id"), "00000000000000000000000000000012\n")?;
    let image = place.join("disk");
    remove(&image)?;
    let mut format = Command::new("mke2fs");
    format.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&root).arg(&image).arg(DISK);
    exec::output(&mut format)?;
    remove(&root)?;
    Ok(image)
}

/// The minimal Debian, made once; it appears only when it is complete.
fn base(place: &Path) -> Result<PathBuf> {
    let base = place.join("base");
    if !base.is_dir() {
        let fresh = place.join("base.new");
        remove(&fresh)?;
        debootstrap(PACKAGES, &fresh)?;
        remove(&fresh.join("var/cache/apt/archives"))?;
        fs::rename(&fresh, &base).with_context(|| format!("cannot rename {}", fresh.display()))?;
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trial_that_ended_without_a_failure_has_passed() {
        assert!(has_passed("boot\nMACHINE 3 s: installed\nMACHINE PASSED\nreboot: Power down\n"));
        assert!(!has_passed("MACHINE FAILED: module\nMACHINE PASSED\n"));
        assert!(!has_passed("MACHINE 3 s: installed\n"));
        assert!(!has_passed(""));
    }

    #[test]
    fn the_trial_ends_with_the_line_that_is_looked_for() {
        assert!(TRIAL.trim_end().ends_with(&format!("echo \"{PASSED}\"")));
    }
}
