//! `governorctl reload`: makes the daemon read its configuration again and shows what changed. Unlike a signal it has an outcome,
//! which is why the unit reloads with it.

use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, value};
use crate::config::{self, Base};
use governor_api::{DEFAULT_SOCKET, Reload};
use hyper::Method;
use std::path::{Path, PathBuf};

/// The control socket to use: `given`, unless that is the built-in one and the configuration file names another. A file that
/// cannot be read names none: the daemon reports what is wrong with it.
pub(in crate::cli) fn control_socket(given: PathBuf, file: Option<PathBuf>) -> PathBuf {
    if given != Path::new(DEFAULT_SOCKET) {
        return given;
    }
    let file = file.or_else(config::default_file);
    let base = Base::read(file.as_deref(), config::environment::of_process()).and_then(|base| base.resolve(&[]));
    base.map_or(given, |loaded| loaded.config.daemon.control_socket)
}

/// Orders it; a configuration that is not valid is an error and changes nothing.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let reload: Reload = ctl.client.send(Method::POST, "/v1/reload", &())?;
    Ok(ctl.show(&reload, |reload, style| text(reload, *style)))
}

pub(in crate::cli) fn text(reload: &Reload, style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("KEY").rank(0).least(24),
        Column::text("BEFORE").rank(1),
        Column::text("AFTER").rank(0),
        Column::text("IN FORCE").rank(0),
    ]);
    for change in &reload.changes {
        let in_force = if change.pending { style.yellow("after a restart") } else { "now".to_owned() };
        table.row([change.key.clone(), value(&change.before), value(&change.after), in_force]);
    }
    let warnings = reload.warnings.iter().map(|warning| format!("warning: {warning}\n"));
    table.text(style, "nothing changed") + &warnings.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::ReloadChange;
    use serde_json::json;

    #[test]
    fn each_change_says_when_it_holds() {
        let change = |key: &str, before, after, pending| ReloadChange { key: key.into(), before, after, pending };
        let reload = Reload {
            changes: vec![
                change("kernel.tick", json!("100ms"), json!("50ms"), true),
                change("node.cap", json!(1000), json!(2000), false),
            ],
            warnings: Vec::new(),
        };
        insta::assert_snapshot!(text(&reload, Style::PLAIN), @"
        KEY          BEFORE  AFTER  IN FORCE
        kernel.tick  100ms   50ms   after a restart
        node.cap     1000    2000   now
        ");
        assert_eq!(text(&Reload::default(), Style::PLAIN), "nothing changed\n");
    }

    #[test]
    fn a_socket_that_was_given_is_used() {
        assert_eq!(control_socket("/tmp/x".into(), Some("/nonexistent".into())), Path::new("/tmp/x"));
        assert_eq!(control_socket(DEFAULT_SOCKET.into(), Some("/nonexistent".into())), Path::new(DEFAULT_SOCKET));
    }

    #[test]
    fn the_configuration_names_the_socket() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[daemon]\ncontrol_socket = \"/run/other.sock\"\n").unwrap();
        let found = control_socket(DEFAULT_SOCKET.into(), Some(file.path().to_owned()));
        assert_eq!(found, Path::new("/run/other.sock"));
    }
}
