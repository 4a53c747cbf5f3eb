//! QEMU: found or unpacked, and one machine run to its end within a time limit.

use crate::debian::apt::Apt;
use crate::exec;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program, and the package it is in.
const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// The package of the static busybox.
const BUSYBOX: &str = "busybox-static";

/// How often a running machine is looked at.
const POLL: Duration = Duration::from_millis(50);

/// What machines run with.
#[derive(Debug)]
pub(super) struct Emulator {
    /// Unpacked packages; `None`: the machine's own QEMU.
    unpacked: Option<PathBuf>,
    /// A static busybox.
    pub(super) busybox: PathBuf,
}

/// A machine to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    /// Compressed kernel.
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Image of its disk, `/dev/vda`; written to.
    pub(super) disk: Option<&'a Path>,
    pub(super) processors: NonZeroUsize,
    /// Longest silence: a longer one ends it. How long a whole run takes depends on what else this machine does, and a test
    /// that hangs is silent.
    pub(super) patience: Duration,
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It turned itself off or crashed; the console says which.
    Stopped,
    /// It said nothing for too long and was killed.
    TimedOut,
}

impl Emulator {
    /// What is installed here or was unpacked into `store` earlier; `None` when something must be fetched.
    pub(super) fn present(store: &Path) -> Option<Self> {
        let busybox = busybox(store).filter(|path| path.is_file())?;
        let unpacked = store.join("qemu");
        if exec::find(QEMU.0).is_some() {
            return Some(Self { unpacked: None, busybox });
        }
        unpacked.join("usr/bin").join(QEMU.0).is_file().then_some(Self { unpacked: Some(unpacked), busybox })
    }

    /// Unpacks what is missing. Nothing is installed, so this needs no rights.
    pub(super) fn fetch(store: &Path, apt: &Apt) -> Result<Self> {
        if busybox(store).is_none() {
            apt.unpack(&[BUSYBOX.to_owned()], &store.join("busybox"))?;
        }
        if exec::find(QEMU.0).is_none() {
            apt.unpack_with_dependencies(&[QEMU.1], &store.join("qemu"))?;
        }
        Self::present(store).with_context(|| format!("{} or {BUSYBOX} lack their program; they changed", QEMU.1))
    }

    /// Runs one machine to its end; what it says goes to the file `console`.
    pub(super) fn run(&self, machine: Machine<'_>, console: &Path) -> Result<End> {
        let said = File::create(console).with_context(|| format!("cannot create {}", console.display()))?;
        let mut command = self.command();
        command
            // Software emulation, because it works everywhere; KVM inside a virtual machine often does not.
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2G", "-smp"])
            .arg(machine.processors.to_string())
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(machine.kernel)
            .arg("-initrd")
            .arg(machine.initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
            .stdin(Stdio::null())
            .stderr(said.try_clone()?)
            .stdout(said.try_clone()?);
        if let Some(disk) = machine.disk {
            let mut drive = OsString::from("if=virtio,format=raw,cache=unsafe,file=");
            drive.push(disk);
            command.arg("-drive").arg(drive);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut last = (Instant::now(), 0);
        loop {
            if child.try_wait()?.is_some() {
                return Ok(End::Stopped);
            }
            let length = said.metadata()?.len();
            if length > last.1 {
                last = (Instant::now(), length);
            }
            if last.0.elapsed() > machine.patience {
                child.kill()?;
                child.wait()?;
                return Ok(End::TimedOut);
            }
            std::thread::sleep(POLL);
        }
    }

    /// QEMU, ending with this process even when that one is killed, where the system can do that.
    fn command(&self) -> Command {
        let qemu = match &self.unpacked {
            Some(folder) => folder.join("usr/bin").join(QEMU.0),
            None => PathBuf::from(QEMU.0),
        };
        let mut command = match exec::find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--", "env"]);
                command
            }
            None => Command::new("env"),
        };
        let Some(folder) = &self.unpacked else {
            command.arg(qemu);
            return command;
        };
        // Only for QEMU itself: the programs that start it are not of the same packages.
        let mut libraries = OsString::from("LD_LIBRARY_PATH=");
        libraries.push(library_path(folder));
        command.arg(libraries).arg(qemu);
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(folder.join(data));
        }
        command
    }
}

/// Every place where Debian's packages put libraries.
fn library_path(folder: &Path) -> OsString {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    ["usr/lib", "lib"].map(|place| folder.join(place).join(&architecture).into_os_string()).join(&OsString::from(":"))
}

fn busybox(store: &Path) -> Option<PathBuf> {
    ["usr/bin/busybox", "bin/busybox"]
        .iter()
        .map(|path| store.join("busybox").join(path))
        .find(|path| fs::metadata(path).is_ok())
}
