//! Python programs against the daemon: the interpreter of this machine and the examples of the client. Knows no test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An interpreter with nothing but its standard library; `None` if this machine has none that is recent enough (3.10).
#[must_use]
pub fn command() -> Option<Command> {
    let probe = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success()).then(|| {
        let mut command = Command::new("python3");
        // No user's packages, no caches beside the source.
        command.args(["-I", "-B"]);
        command
    })
}

/// An example of the client by its file name.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    examples().join(name)
}

/// The folder of the client's examples.
#[must_use]
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../governor-user/client/examples")
}
