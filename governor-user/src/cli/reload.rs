//! `governorctl reload`: has the daemon read its configuration anew and shows what changed.

use super::answer::{Answer, Error};
use super::render::{Column, Style, Table, value};
use super::run::Ctl;
use crate::control::api::Reload;
use hyper::Method;

/// Orders it; a configuration that is not valid is an error and changes nothing.
pub(super) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let reload: Reload = ctl.client.send(Method::POST, "/v1/reload", &())?;
    Ok(ctl.show(&reload, |reload, style| shown(reload, *style)))
}

fn shown(reload: &Reload, style: Style) -> String {
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
    use crate::control::api::ReloadChange;
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
        insta::assert_snapshot!(shown(&reload, Style::PLAIN), @"
        KEY          BEFORE  AFTER  IN FORCE
        kernel.tick  100ms   50ms   after a restart
        node.cap     1000    2000   now
        ");
        assert_eq!(shown(&Reload::default(), Style::PLAIN), "nothing changed\n");
    }
}
