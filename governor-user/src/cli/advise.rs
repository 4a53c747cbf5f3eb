//! `governorctl advise`: what other fair-share settings would have done with the demand that was recorded.

use super::answer::{Answer, Error};
use super::client::with_query;
use super::pools::rule;
use super::render::{Style, Table, duration, or_dash};
use super::run::Ctl;
use crate::control::api::Advice;
use crate::wording::counted;

/// Asks and shows.
pub(super) fn run(ctl: &Ctl, last_seconds: u64) -> Result<Answer, Error> {
    let advice: Advice =
        ctl.client.get(&with_query("/v1/advise", &[("last_seconds", Some(last_seconds.to_string()))]))?;
    Ok(ctl.show(&advice, |advice, style| text(advice, *style)))
}

fn text(advice: &Advice, style: Style) -> String {
    if advice.pools.is_empty() {
        return "no demand was recorded in that time: see daemon.record\n".to_owned();
    }
    let mut text = String::new();
    for pool in &advice.pools {
        text.push_str(&format!(
            "pool {}: {} of {} in {}, replayed under each setting, enforced\n\n",
            pool.pool,
            counted(pool.requests, "request", "requests"),
            counted(pool.keys, "key", "keys"),
            duration(advice.window_seconds)
        ));
        let mut table =
            Table::new(&["FAIR SHARE", ">WAITED", ">OF KEYS", ">REFUSED", ">OF KEYS", ">UTILISATION", "NOW"]);
        for setting in &pool.settings {
            table.row([
                rule(setting.fair_share),
                setting.waited_requests.to_string(),
                setting.waited_keys.to_string(),
                setting.refused_requests.to_string(),
                setting.refused_keys.to_string(),
                or_dash(setting.utilisation_percent.map(|percent| format!("{percent:.1} %"))),
                if setting.current { "this" } else { "" }.to_owned(),
            ]);
        }
        text.push_str(&table.text(style, "no setting"));
        text.push('\n');
    }
    text.push_str("A refused request is counted and does not come back in the replay.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{FairShare, PoolAdvice, SettingAdvice};

    #[test]
    fn each_setting_shows_whom_it_would_have_held_back_and_what_it_would_have_left_unused() {
        let setting = |fair_share, current, waited_requests, utilisation| SettingAdvice {
            fair_share,
            current,
            waited_requests,
            waited_keys: 1,
            refused_requests: 0,
            refused_keys: 0,
            utilisation_percent: utilisation,
        };
        let settings =
            vec![setting(FairShare::Off, true, 3, Some(97.25)), setting(FairShare::EqualSplit(80), false, 41, None)];
        let pools = vec![PoolAdvice { pool: "chat".into(), requests: 1200, keys: 10, settings }];
        let shown = text(&Advice { window_seconds: 3600.0, pools }, Style::PLAIN);
        insta::assert_snapshot!(shown, @"
        pool chat: 1200 requests of 10 keys in 1h00m, replayed under each setting, enforced

        FAIR SHARE  WAITED  OF KEYS  REFUSED  OF KEYS  UTILISATION  NOW
        off              3        1        0        0       97.2 %  this
        from 80 %       41        1        0        0            -

        A refused request is counted and does not come back in the replay.
        ");
    }

    #[test]
    fn nothing_recorded_says_where_to_look() {
        let shown = text(&Advice { window_seconds: 0.0, pools: vec![] }, Style::PLAIN);
        assert!(shown.contains("daemon.record"), "{shown}");
    }
}
