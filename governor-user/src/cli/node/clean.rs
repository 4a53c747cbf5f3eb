//! `governorctl doctor --clean`: removes what a governord that is gone has left, its socket files and its pins. Needs
//! no daemon and refuses while one runs: all of it is looked at before any of it is removed.

use crate::cli::answer::{Answer, Error, Exit};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Style, printable};
use crate::config::{self, Base, Config};
use crate::transport::listener;
use anyhow::Result;
use governor_kernel::programs::pin::folder::Folder;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Cleaned {
    /// Paths that are gone now.
    removed: Vec<PathBuf>,
    /// Why something stays; `null` if nothing does.
    refused: Option<String>,
}

/// Cleans up after the governord of this configuration.
pub(in crate::cli) fn run(ctl: &Ctl, file: Option<PathBuf>) -> Result<Answer, Error> {
    let file = file.or_else(config::default_file);
    let config = Base::read(file.as_deref(), config::environment::of_process())?.resolve(&[])?.config;
    let mut cleaned = Cleaned::default();
    cleaned.refused = clean(&config, &mut cleaned.removed).err().map(|error| format!("{error:#}"));
    let exit = if cleaned.refused.is_some() { Exit::Negative } else { Exit::Ok };
    let answer = ctl.show(&cleaned, |cleaned, style| text(cleaned, *style));
    Ok(Answer { exit, ..answer })
}

fn clean(config: &Config, removed: &mut Vec<PathBuf>) -> Result<()> {
    let sockets = [&config.daemon.socket, &config.daemon.control_socket];
    for socket in sockets {
        listener::is_leftover(socket)?;
    }
    // The holder of the folder is alive; no other process can take it while this one has it.
    let pins = Folder::existing(&config.kernel.pin_dir)?;
    for socket in sockets {
        if listener::remove_leftover(socket)? {
            removed.push(socket.clone());
        }
    }
    if let Some(pins) = pins {
        let folder = pins.path().to_owned();
        removed.extend(pins.remove()?.into_iter().map(|name| folder.join(name)));
    }
    Ok(())
}

fn text(cleaned: &Cleaned, style: Style) -> String {
    let shown = |path: &Path| printable(&path.display().to_string());
    let mut text: String = cleaned.removed.iter().map(|path| format!("removed {}\n", shown(path))).collect();
    match &cleaned.refused {
        Some(reason) if text.is_empty() => text.push_str(&style.red(&format!("nothing is removed: {reason}"))),
        Some(reason) => text.push_str(&style.red(&format!("the rest stays: {reason}"))),
        None if text.is_empty() => text.push_str("there is nothing to remove"),
        None => return text,
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_and_what_stays_is_said() {
        let removed = vec!["/run/governor/proxy.sock".into()];
        let refused = Some("it is in use".to_owned());
        for (cleaned, expected) in [
            (Cleaned::default(), "there is nothing to remove\n"),
            (Cleaned { removed: removed.clone(), refused: None }, "removed /run/governor/proxy.sock\n"),
            (Cleaned { removed: Vec::new(), refused: refused.clone() }, "nothing is removed: it is in use\n"),
            (Cleaned { removed, refused }, "removed /run/governor/proxy.sock\nthe rest stays: it is in use\n"),
        ] {
            assert_eq!(text(&cleaned, Style::PLAIN), expected);
        }
    }
}
