//! `cargo xtask setup`.

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not written yet")
}

/// Does what is missing, quietly when nothing is.
pub(crate) fn ensure() -> anyhow::Result<()> {
    Ok(())
}
