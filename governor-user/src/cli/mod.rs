//! `governorctl`: asks the daemon over its control socket and shows the answer to people (tables) or programs (JSON).
//! Decides nothing and reads no state of its own, but for the local checks of `doctor`,
//! and changes nothing itself but by `doctor --clean`.
//!
//! One file a subcommand; `args` is the command line, `client` the HTTP, `table` and `render` the output, `run` the frame
//! around them. Exit codes are in `answer::Exit`.

mod admission;
mod answer;
mod args;
mod asking;
mod help;
mod node;
mod run;
mod sockets;
mod text;

pub use help::manual::daemon_page;
pub use run::main;
