//! `governorctl advise`: what other fair-share settings would have done with the demand that was recorded.

use crate::cli::admission::pools::rule;
use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, duration, or_dash, wrapped};
use governor_api::Advice;
use governor_observation::wording::counted;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, last_seconds: u64) -> Result<Answer, Error> {
    let advice: Advice =
        ctl.client.get(&with_query("/v1/advise", &[("last_seconds", Some(last_seconds.to_string()))]))?;
    Ok(ctl.show(&advice, |advice, style| text(advice, *style)))
}

pub(in crate::cli) fn text(advice: &Advice, style: Style) -> String {
    if advice.pools.is_empty() {
        return "no demand was recorded in that time: see daemon.record\n".to_owned();
    }
    let mut text = String::new();
    for pool in &advice.pools {
        let line = format!(
            "pool {}: {} of {} in {}, replayed under each setting, enforced",
            pool.pool,
            counted(pool.requests, "request", "requests"),
            counted(pool.keys, "key", "keys"),
            duration(advice.window_seconds)
        );
        text.push_str(&wrapped(&line, 0, style.width()));
        text.push('\n');
        let mut table = Table::new(&[
            Column::word("FAIR SHARE").rank(0),
            Column::number("WAITED").rank(0),
            Column::number("OF KEYS").rank(2),
            Column::number("REFUSED").rank(0),
            Column::number("OF KEYS").rank(2),
            Column::number("UTILISATION").rank(1),
            Column::word("NOW").rank(0),
        ]);
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
    text.push_str(&wrapped("A refused request is counted and does not come back in the replay.", 0, style.width()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{FairShare, PoolAdvice, SettingAdvice};

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
