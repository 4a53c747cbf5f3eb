//! The kernel series under test and what is expected of each. Data only.

/// A series of Debian kernels.
#[derive(Debug)]
pub(super) struct Series {
    /// What it is called on the command line.
    pub(super) name: &'static str,
    /// What its versions begin with.
    pub(super) prefix: &'static str,
    /// Where its packages are, as suites of Debian.
    pub(super) suites: &'static [&'static str],
    /// The tier that the governor must reach on it by itself; anything else is a failure.
    pub(super) tier: &'static str,
    /// What tests may do that cannot run on it.
    pub(super) skips: Skips,
}

/// What a skipped test means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skips {
    /// The kernel lacks what it needs, as is known.
    Expected,
    /// Everything is there, so it hides a fault.
    Fail,
}

/// In the order they run.
pub(super) const ALL: [Series; 4] = [
    Series {
        name: "6.1",
        prefix: "6.1.",
        suites: &["bookworm", "bookworm-security"],
        tier: "trampoline",
        skips: Skips::Fail,
    },
    Series {
        name: "6.12",
        prefix: "6.12.",
        suites: &["trixie", "trixie-security"],
        tier: "trampoline",
        skips: Skips::Fail,
    },
    Series { name: "7.x", prefix: "7.", suites: &["trixie-backports", "sid"], tier: "trampoline", skips: Skips::Fail },
    // Tracing programs have no socket storage before 5.11, so there is no BPF tier.
    Series {
        name: "5.10",
        prefix: "5.10.",
        suites: &["bullseye", "bullseye-security"],
        tier: "netlink",
        skips: Skips::Expected,
    },
];

/// The names, for the command line.
pub(super) fn names() -> [&'static str; 4] {
    [ALL[0].name, ALL[1].name, ALL[2].name, ALL[3].name]
}
