//! A rustc with a prebuilt `core` for `bpfel-unknown-none`: Debian's rustc-web packages, downloaded and *unpacked*.
//!
//! They are never installed: they conflict with Debian's rustc, cargo and rustup and would remove them. Only the
//! user's own cargo is linked in beside the unpacked rustc.

use super::{Tools, step, system};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The prebuilt `core`, below the prefix; its presence is what makes the compiler fit.
pub(super) const CORE: &str = "lib/rustlib/bpfel-unknown-none/lib";

/// The workspace's `rust-version`: an older compiler refuses to build governor-ebpf.
const NEEDED: (u32, u32) = (1, 95);

/// Named packages; the runtime library and LLVM carry their version in the name and are found by dependency.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "libstd-rust-web-dev-bpf"];

/// What was unpacked.
#[derive(Debug)]
pub(super) struct Compiler {
    /// Debian version.
    pub(super) version: String,
    /// Major version of its LLVM.
    pub(super) llvm: u32,
}

/// Downloads and unpacks the compiler, links cargo and libLLVM, and asks the result for its versions.
pub(super) fn install(tools: &Tools) -> Result<Compiler> {
    if !system::on_path("apt-get") || !system::on_path("dpkg") {
        bail!(
            "no apt-get and dpkg here, and the eBPF compiler comes from Debian packages; \
             build on Debian, or give a prebuilt object in GOVERNOR_EBPF_OBJECT"
        );
    }
    let version = available()?;
    let runtime = dependency("libstd-rust-web-dev", "libstd-rust-web-")?;
    let llvm_package = dependency(&runtime, "libllvm")?;
    let fresh = tools.root.join("ebpf.new");
    clear(&fresh)?;
    let archives = fresh.join("archives");
    fs::create_dir_all(&archives).with_context(|| format!("cannot create {}", archives.display()))?;
    let libraries = [runtime.as_str(), llvm_package.as_str()];
    step::timed(format_args!("download {}, {}", PACKAGES.join(", "), libraries.join(", ")), || {
        download(&archives, &libraries)
    })?;
    step::timed(format_args!("unpack the compiler into target/tools"), || {
        unpack(&archives, &fresh)?;
        join_library_folders(&fresh)
    })?;
    clear(&archives)?;

    let place = tools.packages();
    clear(&place)?;
    fs::rename(&fresh, &place).with_context(|| format!("cannot move the compiler to {}", place.display()))?;
    if !tools.prefix().join(CORE).is_dir() {
        bail!("{} {version} has no core for bpfel-unknown-none; its packages changed", PACKAGES[2]);
    }
    replace_link(&cargo()?, &tools.prefix().join("bin/cargo"))?;
    let llvm = llvm_major(tools)?;
    link_llvm(tools, llvm)?;
    Ok(Compiler { version, llvm })
}

/// Points the link to cargo at today's cargo when the one it was made for is gone (the user's toolchain moved on).
pub(super) fn repair_cargo(tools: &Tools) -> Result<()> {
    let link = tools.prefix().join("bin/cargo");
    if fs::symlink_metadata(&link).is_ok() && !link.exists() { replace_link(&cargo()?, &link) } else { Ok(()) }
}

/// The version apt would give, refreshing the lists once when they know none or only an old one.
fn available() -> Result<String> {
    if let Some(version) = candidate().filter(|version| recent_enough(version)) {
        return Ok(version);
    }
    system::refresh_lists("the package lists know no recent rustc-web")?;
    match candidate() {
        None => bail!(
            "Debian's package {} is not to be had; are the main and security suites among the apt sources?",
            PACKAGES[0]
        ),
        Some(version) if !recent_enough(&version) => bail!(
            "the newest {} here is {version}, but {}.{} is needed; it is in Debian's security suite",
            PACKAGES[0],
            NEEDED.0,
            NEEDED.1
        ),
        Some(version) => Ok(version),
    }
}

fn candidate() -> Option<String> {
    field(PACKAGES[0], "Version").ok().flatten()
}

fn recent_enough(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= NEEDED)
}

/// One field of a package's candidate version.
fn field(package: &str, name: &str) -> Result<Option<String>> {
    let shown = step::output(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
    Ok(shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned()))
}

/// The package that `package` depends on and whose name is `prefix` and a number.
fn dependency(package: &str, prefix: &str) -> Result<String> {
    let depends = field(package, "Depends")?.unwrap_or_default();
    depends
        .split([',', '|'])
        .filter_map(|one| one.split_whitespace().next())
        .find(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        .map(str::to_owned)
        .with_context(|| format!("{package} depends on no {prefix}N (it depends on: {depends}); its packages changed"))
}

/// Downloads the compiler's packages, and `libraries` with every library below them that is not installed here: a
/// minimal Debian lacks several, and the compiler finds them by its library path. apt resolves what they need; it is
/// not asked about the compiler itself, which would also bring a C compiler and remove the user's rustc.
fn download(into: &Path, libraries: &[&str]) -> Result<()> {
    fs::create_dir_all(into.join("partial")).with_context(|| format!("cannot create {}", into.display()))?;
    let mut archives = OsString::from("Dir::Cache::archives=");
    archives.push(into);
    let fetch = || {
        // The sandbox user could not write here, and apt would only warn about it.
        let mut compiler = Command::new("apt-get");
        compiler.args(["-o", "APT::Sandbox::User=root", "download"]).args(PACKAGES).current_dir(into);
        step::output(&mut compiler)?;
        // Nothing is installed, so the machine's locks are not needed; --reinstall downloads what is installed already.
        let mut below = Command::new("apt-get");
        below.args(["-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", "-o"]).arg(&archives);
        below.args(["install", "--download-only", "--reinstall", "--yes", "--no-install-recommends"]).args(libraries);
        step::output(below.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    if fetch().is_err() {
        system::refresh_lists("the download failed, so the package lists may be out of date")?;
        fetch().context("the compiler's packages cannot be downloaded")?;
    }
    Ok(())
}

fn unpack(archives: &Path, into: &Path) -> Result<()> {
    for entry in fs::read_dir(archives).with_context(|| format!("cannot read {}", archives.display()))? {
        let archive = entry?.path();
        if archive.extension().is_none_or(|extension| extension != "deb") {
            continue;
        }
        step::output(Command::new("dpkg").arg("-x").arg(&archive).arg(into))?;
    }
    Ok(())
}

/// Moves libraries of `lib/<architecture>-linux-gnu` to the folder of the same name below `usr`: before the two were
/// one, packages used both, and the library path names only the latter.
fn join_library_folders(root: &Path) -> Result<()> {
    let from = library_path(root);
    if !from.is_dir() {
        return Ok(());
    }
    let into = library_path(&root.join("usr"));
    fs::create_dir_all(&into).with_context(|| format!("cannot create {}", into.display()))?;
    for entry in fs::read_dir(&from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        fs::rename(entry.path(), into.join(entry.file_name()))
            .with_context(|| format!("cannot move {}", entry.path().display()))?;
    }
    Ok(())
}

/// The user's real cargo: not rustup's proxy, which would look for a toolchain of its own.
fn cargo() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CARGO").map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Ok(path);
    }
    let which = if system::on_path("rustup") { ["rustup", "which", "cargo"] } else { ["sh", "-c", "command -v cargo"] };
    let path = step::output(Command::new(which[0]).args(&which[1..])).context("cannot find cargo")?;
    Ok(PathBuf::from(path.trim()))
}

/// LLVM's major version as the unpacked compiler itself prints it.
fn llvm_major(tools: &Tools) -> Result<u32> {
    let libraries = library_folder(&tools.prefix())?;
    let told =
        step::output(Command::new(tools.prefix().join("bin/rustc")).arg("-vV").env("LD_LIBRARY_PATH", &libraries))
            .context("the unpacked compiler does not run")?;
    told.lines()
        .find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next()?.parse().ok())
        .with_context(|| format!("rustc -vV names no LLVM version:\n{told}"))
}

fn link_llvm(tools: &Tools, major: u32) -> Result<()> {
    let libraries = library_folder(&tools.prefix())?;
    let wanted = format!("libLLVM.so.{major}");
    let library = fs::read_dir(&libraries)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&wanted)))
        .with_context(|| format!("no {wanted} in {}", libraries.display()))?;
    clear(&tools.llvm())?;
    fs::create_dir_all(tools.llvm())?;
    replace_link(&library, &tools.llvm().join(format!("libLLVM-{major}.so")))
}

fn library_path(prefix: &Path) -> PathBuf {
    prefix.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
}

/// `usr/lib/<architecture>-linux-gnu`.
fn library_folder(prefix: &Path) -> Result<PathBuf> {
    let folder = library_path(prefix);
    if folder.is_dir() { Ok(folder) } else { bail!("the compiler's packages have no {}", folder.display()) }
}

fn replace_link(target: &Path, link: &Path) -> Result<()> {
    if fs::symlink_metadata(link).is_ok() {
        fs::remove_file(link).with_context(|| format!("cannot replace {}", link.display()))?;
    }
    symlink(target, link).with_context(|| format!("cannot link {}", link.display()))
}

fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::recent_enough;

    #[test]
    fn debian_versions_are_compared_by_number() {
        assert!(recent_enough("1.96.0+dfsg1-1~deb12u2"));
        assert!(recent_enough("2.1.0-1"));
        assert!(!recent_enough("1.85.0+dfsg3-1~deb12u3"));
        assert!(!recent_enough("1.9"));
        assert!(!recent_enough(""));
    }
}
