//! `governorctl`: see, explain and steer the governor. Everything is in [`governor_user::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    governor_user::cli::main()
}
