//! Everything machines are made of, found or fetched: the emulator and a kernel for each series. Fetching never stops
//! the whole: a series without a kernel keeps the reason why.

use super::emulator::Emulator;
use super::kernel::Kernel;
use super::progress;
use super::series::Series;
use super::timed;
use crate::debian::apt::Apt;
use crate::debian::archive::Archives;
use crate::exec;
use crate::setup;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// What machines are made of.
#[derive(Debug)]
pub(super) struct Ready<'a> {
    pub(super) emulator: Emulator,
    /// A kernel for each series, or why there is none.
    pub(super) kernels: Vec<(&'a Series, Result<Kernel, String>)>,
}

impl<'a> Ready<'a> {
    /// Finds or fetches everything. Safe to call from several processes at once.
    pub(super) fn for_series(wanted: &[&'a Series], update: bool) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            bail!("only x86-64 kernels are emulated, and this is {}", std::env::consts::ARCH);
        }
        let store = exec::root().join("target/tools/kernels");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        let _lock = setup::lock(&store.join("lock"))?;
        let emulator = match Emulator::present(&store) {
            Some(present) => present,
            None => fetch_emulator(&store)?,
        };
        let missing = |series: &Series| update || Kernel::cached(&store, series).is_none();
        let suites: Vec<&str> =
            wanted.iter().filter(|series| missing(series)).flat_map(|series| series.suites).copied().collect();
        let apt = if suites.is_empty() { None } else { Some(lists(&store.join("apt"), &suites)?) };
        let kernels = wanted
            .iter()
            .map(|series| {
                let kernel = match &apt {
                    Some((apt, complaint)) if missing(series) => renew(&store, series, apt, complaint.as_deref()),
                    _ => Kernel::cached(&store, series).context("it is gone"),
                };
                (*series, kernel.map_err(|error| format!("{error:#}")))
            })
            .collect();
        Ok(Self { emulator, kernels })
    }
}

/// QEMU from this machine's own release, because it uses libraries that are installed here; lists of other releases
/// would bring a C library along.
fn fetch_emulator(store: &Path) -> Result<Emulator> {
    let name = setup::release()?;
    let suites = [name.clone(), format!("{name}-updates"), format!("{name}-security")];
    let (apt, complaint) = lists(&store.join("apt-own"), &suites.each_ref().map(String::as_str))?;
    let fetched = timed(format_args!("fetch QEMU and busybox"), || Emulator::fetch(store, &apt));
    fetched.map_err(|error| explained(error, complaint.as_deref()))
}

fn lists(folder: &Path, suites: &[&str]) -> Result<(Apt, Option<String>)> {
    if exec::find("apt-get").is_none() || exec::find("dpkg").is_none() {
        bail!("kernels and QEMU come from Debian packages, and there is no apt-get and dpkg here");
    }
    let archives = Archives::of_machine()?;
    timed(format_args!("fetch the package lists of {}", suites.join(", ")), || Apt::with(folder, &archives, suites))
}

/// A package that cannot be had is often one whose list could not be fetched.
fn explained(error: anyhow::Error, complaint: Option<&str>) -> anyhow::Error {
    match complaint {
        Some(complaint) => error.context(format!("apt said: {complaint}")),
        None => error,
    }
}

/// Fetches the newest kernel; one that is there already is better than none.
fn renew(store: &Path, series: &Series, apt: &Apt, complaint: Option<&str>) -> Result<Kernel> {
    let fetched = timed(format_args!("fetch kernel {}", series.name), || Kernel::fetch(store, series, apt));
    match (fetched, Kernel::cached(store, series)) {
        (Ok(kernel), _) => Ok(kernel),
        (Err(error), Some(kernel)) => {
            progress(format_args!("kernel {} stays at {}: {error:#}", series.name, kernel.version));
            Ok(kernel)
        }
        (Err(error), None) => Err(explained(error, complaint)),
    }
}
