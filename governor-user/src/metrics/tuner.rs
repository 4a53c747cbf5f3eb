//! The series of the tuner.

use super::page::Page;
use crate::recorder::TunerFigures;
use governor_api::TunerAction;

/// Writes them.
pub(super) fn write(page: &mut Page, figures: &TunerFigures) {
    let rows = TunerAction::ALL.into_iter().map(|action| {
        let count = figures.actions.get(&action).copied().unwrap_or(0);
        (vec![("action", action.as_str().to_owned())], count)
    });
    page.counter("tuner_actions", "Lines of the tuner's journal, by what was done or would have been", rows.collect());
    let one = |count: usize| vec![(Vec::new(), f64::from(u32::try_from(count).unwrap_or(u32::MAX)))];
    page.gauge("tuner_raised_listeners", "Listeners whose backlog the tuner has raised", one(figures.raised));
    page.gauge("tuner_stood_down_listeners", "Listeners the tuner leaves to an operator", one(figures.stood_down));
    page.gauge(
        "tuner_clamped_listeners",
        "Listeners whose namespace's somaxconn allows less than would help",
        one(figures.clamped),
    );
    page.gauge(
        "tuner_added_backlog",
        "Connections that raised queues hold beyond what their owners asked for, at most",
        one(usize::try_from(figures.added).unwrap_or(usize::MAX)),
    );
}
