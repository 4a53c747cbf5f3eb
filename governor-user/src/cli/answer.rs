//! What a subcommand comes to: text for standard output and an exit code, or an error that has both.

use crate::config::ConfigError;
use governor_api::Failure;
use hyper::StatusCode;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Exit code of `governorctl`; scripts rely on these. Usage errors end with 2, by clap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The answer is yes, or there was nothing to answer.
    Ok = 0,
    /// The daemon answered no: unknown decision, refused setting, failed check, counts unavailable.
    Negative = 1,
    /// No daemon answered.
    Unreachable = 3,
}

/// A finished subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// For standard output; ends with a line feed unless empty.
    pub(super) text: String,
    /// The exit code.
    pub(super) exit: Exit,
}

impl Answer {
    /// An answer that is not negative.
    pub(super) fn ok(text: String) -> Self {
        Self { text, exit: Exit::Ok }
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// Nothing answers on the socket.
    #[error("cannot reach governord at {}: {}", socket.display(), meaning(cause))]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said; the sentence has its meaning.
        cause: io::Error,
    },
    /// A process accepts and does not answer.
    #[error(
        "governord at {} does not answer within {seconds} s: it is stuck or stopped; see its log, then restart it",
        socket.display()
    )]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// A process answers that is not governord, or not of this version.
    #[error("what answers at {} is not governord of this version ({what}): check --socket", socket.display())]
    Foreign {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with the answer.
        what: String,
    },
    /// The daemon said no.
    #[error("{}", sentence(failure))]
    Refused {
        /// With this status.
        status: StatusCode,
        /// For this reason.
        failure: Failure,
    },
    /// The configuration does not say what is to be done.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This process cannot do its part.
    #[error("cannot {doing}")]
    Local {
        /// What it tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Foreign { .. } => Exit::Unreachable,
            Self::Refused { .. } | Self::Config(_) | Self::Local { .. } => Exit::Negative,
        }
    }

    /// Whether the daemon has nothing of this name or id.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused { status: StatusCode::NOT_FOUND, .. })
    }
}

/// What an error of `connect` means here, and what to do.
fn meaning(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => {
            "there is no such socket; start governord (systemctl start governord), or name its socket with --socket; if it \
             runs and the file was removed, systemctl kill --signal=HUP --kill-whom=main governord makes it again"
                .into()
        }
        Some(Errno::CONNREFUSED) => {
            "nobody listens there, it was left by a governord that is gone; start governord (systemctl start governord)"
                .into()
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "permission denied; run as root, or as a member of the socket's group".into()
        }
        Some(Errno::NOTSOCK) => "it is not a socket; name the control socket with --socket".into(),
        Some(_) | None => format!("{error}; see whether governord runs, and name its socket with --socket"),
    }
}

fn sentence(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.error),
        None => failure.error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_daemon_is_one_sentence_that_names_the_socket_and_the_remedy() {
        for (errno, remedy) in [
            (Errno::NOENT, "start governord"),
            (Errno::CONNREFUSED, "start governord"),
            (Errno::ACCESS, "run as root"),
            (Errno::NOTSOCK, "--socket"),
            (Errno::NAMETOOLONG, "--socket"),
        ] {
            let error = Error::Unreachable { socket: "/run/x.sock".into(), cause: errno.into() };
            let text = error.to_string();
            assert!(text.contains("/run/x.sock") && text.contains(remedy), "{text}");
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(error.exit(), Exit::Unreachable);
        }
    }
}
