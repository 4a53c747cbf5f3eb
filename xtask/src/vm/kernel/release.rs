//! Which kernel packages a series has, and which of them is the newest. Pure: reads what `apt-cache` printed.

/// What Debian's cloud kernels of this architecture end with: the smallest with everything the tests need.
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// What its packages' names end with, and what `uname -r` says: `6.1.0-51-cloud-amd64`.
    pub(super) abi: String,
    /// Debian version, e.g. `6.1.176-1`.
    pub(super) version: String,
}

/// Kernel image packages among all names that `apt-cache pkgnames` printed.
pub(super) fn images(names: &str) -> Vec<&str> {
    names.lines().filter(|name| abi(name).is_some()).collect()
}

/// The newest kernel whose version begins with `prefix` in one of `suites`, from the table of `apt-cache madison`.
pub(super) fn newest(madison: &str, prefix: &str, suites: &[&str]) -> Option<Release> {
    madison
        .lines()
        .filter_map(row)
        .filter(|(release, suite)| release.version.starts_with(prefix) && suites.contains(suite))
        .map(|(release, _)| release)
        .max_by_key(|release| order(&release.version))
}

/// The packages that hold the kernel and its modules, of those that exist: newer releases split them.
pub(super) fn packages(release: &Release, names: &str) -> Vec<String> {
    let exists = |name: &String| names.lines().any(|have| have == name);
    let named = |kind: &str| Some(format!("linux-{kind}-{}", release.abi)).filter(exists);
    [named("binary").or_else(|| named("image")), named("modules")].into_iter().flatten().collect()
}

/// `package | version | uri suite/component architecture Packages`
fn row(line: &str) -> Option<(Release, &str)> {
    let mut columns = line.split('|').map(str::trim);
    let (package, version, place) = (columns.next()?, columns.next()?, columns.next()?);
    let suite = place.split_whitespace().nth(1)?.split('/').next()?;
    Some((Release { abi: abi(package)?.to_owned(), version: version.to_owned() }, suite))
}

/// Neither meta packages (`linux-image-cloud-amd64`, `linux-image-6.1-cloud-amd64`) nor unsigned or debug ones.
fn abi(package: &str) -> Option<&str> {
    let abi = package.strip_prefix("linux-image-").or_else(|| package.strip_prefix("linux-binary-"))?;
    let numbers = abi.strip_suffix(FLAVOUR)?.split(['.', '-', '+']);
    let numeric = numbers.take(3).filter(|part| part.parse::<u32>().is_ok()).count();
    (numeric == 3).then_some(abi)
}

/// Order of the kernel's own versions: by number, and a backport (`~bpo`, `~deb`) before what it was made from.
fn order(version: &str) -> (Vec<u64>, bool) {
    let (own, backport) = version.split_once('~').map_or((version, false), |(own, _)| (own, true));
    let numbers = own.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    (numbers, !backport)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADISON: &str = "\
linux-image-6.1.0-9-cloud-amd64 | 6.1.27-1 | http://mirror.example/debian bookworm/main amd64 Packages
linux-image-6.1.0-51-cloud-amd64 | 6.1.176-1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-image-6.1.0-0.deb11.52-cloud-amd64 | 6.1.180-1~deb11u1 | http://mirror.example/debian bullseye-security/main amd64 Packages
linux-image-6.12.118+deb13-cloud-amd64 | 6.12.118-1 | http://mirror.example/debian trixie/main amd64 Packages
linux-image-7.2.13+deb14-cloud-amd64 |   7.2.13-1 | http://mirror.example/debian sid/main amd64 Packages
linux-binary-7.2.13+deb13-cloud-amd64 | 7.2.13-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
linux-image-6.1-cloud-amd64 | 6.1.190-1 | http://mirror.example/debian bookworm/main amd64 Packages
";

    #[test]
    fn the_newest_of_a_series_is_found_by_number_in_its_own_suites() {
        let newest = |prefix, suites: &[&str]| newest(MADISON, prefix, suites).map(|release| release.version);
        assert_eq!(newest("6.1.", &["bookworm", "bookworm-security"]).as_deref(), Some("6.1.176-1"));
        assert_eq!(newest("6.1.", &["bookworm"]).as_deref(), Some("6.1.27-1"));
        assert_eq!(newest("7.", &["trixie-backports", "sid"]).as_deref(), Some("7.2.13-1"));
        assert_eq!(newest("7.", &["trixie-backports"]).as_deref(), Some("7.2.13-1~bpo13+1"));
        assert_eq!(newest("5.10.", &["bullseye"]), None);
    }

    #[test]
    fn only_real_cloud_images_count() {
        let names = "linux-image-6.1.0-51-cloud-amd64\nlinux-image-6.1.0-51-cloud-amd64-dbg\nlinux-image-6.1.0-51-amd64\n\
                     linux-image-cloud-amd64\nlinux-image-6.1-cloud-amd64\nlinux-binary-7.3.4+deb13-cloud-amd64\n\
                     linux-binary-unsigned-7.3.4+deb13-cloud-amd64\nlinux-headers-6.1.0-51-cloud-amd64";
        assert_eq!(images(names), ["linux-image-6.1.0-51-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64"]);
    }

    #[test]
    fn split_packages_are_taken_together() {
        let release = Release { abi: "7.3.4+deb13-cloud-amd64".into(), version: "7.3.4-1".into() };
        let split = "linux-image-7.3.4+deb13-cloud-amd64\nlinux-binary-7.3.4+deb13-cloud-amd64\n\
                     linux-modules-7.3.4+deb13-cloud-amd64";
        assert_eq!(
            packages(&release, split),
            ["linux-binary-7.3.4+deb13-cloud-amd64", "linux-modules-7.3.4+deb13-cloud-amd64"]
        );
        assert_eq!(packages(&release, "linux-image-7.3.4+deb13-cloud-amd64").len(), 1);
    }
}
