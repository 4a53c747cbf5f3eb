//! `governorctl bypass on|off`: lets every request pass at once, counted.

use crate::cli::answer::{Answer, Error};
use crate::cli::args::Switch;
use crate::cli::run::Ctl;
use crate::cli::text::render::{self, Style};
use governor_api::{Bypass, BypassRequest};
use hyper::Method;

/// Switches and shows the state after it.
pub(in crate::cli) fn run(ctl: &Ctl, switch: &Switch) -> Result<Answer, Error> {
    let request = match *switch {
        Switch::On { duration } => BypassRequest { on: true, for_seconds: duration },
        Switch::Off => BypassRequest { on: false, for_seconds: None },
    };
    let bypass: Bypass = ctl.client.send(Method::POST, "/v1/bypass", &request)?;
    Ok(ctl.show(&bypass, |bypass, style| format!("bypass is {}\n", state(*bypass, *style))))
}

/// The switch in words, on in red.
pub(in crate::cli) fn state(bypass: Bypass, style: Style) -> String {
    match (bypass.on, bypass.remaining_seconds) {
        (false, _) => "off".to_owned(),
        (true, None) => style.red("on: every request passes, until switched off"),
        (true, Some(seconds)) => {
            style.red(&format!("on: every request passes, for {} more", render::duration(seconds)))
        }
    }
}
