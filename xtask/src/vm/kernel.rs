//! Debian kernels, one a series, unpacked and kept in the tools folder. A kernel that is there is used until it is
//! asked to look for a newer one.

mod release;

use super::series::Series;
use crate::debian::apt::Apt;
use anyhow::{Context, Result, bail};
use release::Release;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kernel {
    /// Debian version of the package.
    pub(super) version: String,
    /// What `uname -r` says.
    pub(super) abi: String,
    /// The unpacked packages.
    folder: PathBuf,
    /// Compressed image.
    pub(super) image: PathBuf,
}

impl Kernel {
    /// The one that was fetched earlier, if it is still there.
    pub(super) fn cached(store: &Path, series: &Series) -> Option<Self> {
        let text = fs::read(note(store, series)).ok()?;
        serde_json::from_slice(&text).ok().filter(|kernel: &Self| kernel.image.is_file())
    }

    /// Fetches the newest of the series; where that one is there already, only says so.
    pub(super) fn fetch(store: &Path, series: &Series, apt: &Apt) -> Result<Self> {
        let names = apt.names("linux-")?;
        let table = apt.versions(&release::images(&names))?;
        let Some(release) = release::newest(&table, series.prefix, series.suites) else {
            bail!("no kernel {} is in {}", series.name, series.suites.join(", "));
        };
        let earlier = Self::cached(store, series);
        if let Some(kernel) = earlier.as_ref().filter(|kernel| kernel.version == release.version) {
            return Ok(kernel.clone());
        }
        let kernel = Self::unpack(store, &release, &names, apt)?;
        let text = serde_json::to_vec_pretty(&kernel)?;
        fs::write(note(store, series), text).context("cannot note which kernel was fetched")?;
        if let Some(earlier) = earlier {
            fs::remove_dir_all(&earlier.folder).with_context(|| format!("cannot remove kernel {}", earlier.version))?;
        }
        Ok(kernel)
    }

    /// Path of a module's file, compressed or not; `None` where it is built in or not there at all.
    pub(super) fn module(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}.ko");
        ["usr/lib/modules", "lib/modules"]
            .iter()
            .find_map(|modules| find(&self.folder.join(modules).join(&self.abi), &|have| have.starts_with(&file)))
    }

    fn unpack(store: &Path, release: &Release, names: &str, apt: &Apt) -> Result<Self> {
        let folder = store.join(&release.abi);
        let packages: Vec<String> = release::packages(release, names)
            .into_iter()
            .map(|package| format!("{package}={}", release.version))
            .collect();
        apt.unpack(&packages, &folder)?;
        let image = ["boot", "usr/lib/modules", "lib/modules"]
            .iter()
            .find_map(|place| find(&folder.join(place), &|name| name.starts_with("vmlinuz")))
            .with_context(|| format!("{} hold no vmlinuz; the packages changed", packages.join(", ")))?;
        Ok(Self { version: release.version.clone(), abi: release.abi.clone(), folder, image })
    }
}

/// Says which kernel of a series is in the store.
fn note(store: &Path, series: &Series) -> PathBuf {
    store.join(format!("{}.json", series.name))
}

/// The first file below `folder` whose name fits.
fn find(folder: &Path, fits: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(path);
        } else if fits(&entry.file_name().to_string_lossy()) {
            return Some(path);
        }
    }
    folders.sort();
    folders.iter().find_map(|folder| find(folder, fits))
}
