//! What people see while the demo runs: on a terminal one line that is painted over, elsewhere a line now and then.

use serde::Deserialize;
use std::fmt::Arguments;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often a line is printed where it cannot be painted over.
const WITHOUT_TERMINAL: Duration = Duration::from_secs(5);

/// One line of the load's own progress.
#[derive(Debug, Deserialize)]
pub(super) struct LoadProgress {
    pub(super) part: Part,
    pub(super) elapsed_seconds: f64,
    light: ClassProgress,
    heavy: ClassProgress,
}

/// The part of the load's run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    WarmUp,
    Measuring,
    Draining,
}

#[derive(Debug, Deserialize)]
struct ClassProgress {
    streaming: u64,
    refused: u64,
    errors: u64,
}

/// The progress of one phase.
#[derive(Debug)]
pub(super) struct Progress {
    title: &'static str,
    total: Duration,
    terminal: bool,
    printed: Option<Instant>,
}

impl Progress {
    /// A phase that takes about `total`.
    pub(super) fn new(title: &'static str, total: Duration) -> Self {
        Self { title, total, terminal: stderr().is_terminal(), printed: None }
    }

    /// Shows where the phase is.
    pub(super) fn show(&mut self, load: &LoadProgress, slots: (u64, u64)) {
        let line = line(self.title, self.total, load, slots);
        if self.terminal {
            write(format_args!("\r{line}\x1b[K"));
        } else if self.printed.is_none_or(|printed| printed.elapsed() >= WITHOUT_TERMINAL) {
            write(format_args!("{line}\n"));
            self.printed = Some(Instant::now());
        }
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, words: Arguments<'_>) {
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        write(format_args!("{start}{words}\n"));
    }
}

impl Drop for Progress {
    /// What follows begins on an empty line.
    fn drop(&mut self) {
        if self.terminal {
            write(format_args!("\r\x1b[K"));
        }
    }
}

/// At most 80 columns, so that it can be painted over on any terminal.
fn line(title: &str, total: Duration, load: &LoadProgress, (used, slots): (u64, u64)) -> String {
    let LoadProgress { elapsed_seconds, light, heavy, .. } = load;
    let elapsed = Duration::try_from_secs_f64(*elapsed_seconds).unwrap_or(total).as_millis();
    let tenths = usize::try_from(elapsed * 10 / total.as_millis().max(1)).unwrap_or(10).min(10);
    let bar = format!("{:-<10}", "#".repeat(tenths));
    let failed = |class: &ClassProgress| class.refused + class.errors;
    format!(
        "{title:<8}{elapsed_seconds:>4.0} s [{bar}] slots {used:>2}/{slots:<2} (heavy {:>2}) failed: light {}, heavy {}",
        heavy.streaming,
        failed(light),
        failed(heavy),
    )
}

/// Progress without a reader is no error.
fn write(text: Arguments<'_>) {
    let mut stderr = stderr();
    drop(stderr.write_fmt(text).and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(text: &str) -> LoadProgress {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_line_tells_time_slots_and_who_failed() {
        let load = progress(
            r#"{"part":"measuring","elapsed_seconds":11.0,
                "light":{"open":9,"streaming":8,"ok":140,"refused":60,"errors":1},
                "heavy":{"open":120,"streaming":70,"ok":900,"refused":3000,"errors":0}}"#,
        );
        assert_eq!(
            line("with", Duration::from_secs(22), &load, (78, 98)),
            "with      11 s [#####-----] slots 78/98 (heavy 70) failed: light 61, heavy 3000"
        );
    }

    #[test]
    fn the_bar_never_overflows() {
        for elapsed in ["0", "21.9", "22", "60", "1e9"] {
            let class = r#"{"streaming":0,"ok":0,"refused":0,"errors":0}"#;
            let load = progress(&format!(
                r#"{{"part":"draining","elapsed_seconds":{elapsed},"light":{class},"heavy":{class}}}"#
            ));
            let line = line("without", Duration::from_secs(22), &load, (0, 0));
            let bar = &line[line.find('[').unwrap() + 1..line.find(']').unwrap()];
            assert_eq!(bar.len(), 10, "{line}");
        }
    }
}
