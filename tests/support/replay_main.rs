//! `replay FILE`: puts the decisions of a file to the engine once more and says where the answer is the same and where
//! not. Ends with 1 when one is not.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};
use support::replay::{Verdict, read, replay};

fn main() -> ExitCode {
    let Some(file) = env::args_os().nth(1).map(PathBuf::from) else {
        complain("usage: replay FILE");
        return ExitCode::from(2);
    };
    let records = match fs::read(&file).map_err(anyhow::Error::from).and_then(|bytes| Ok(read(&bytes)?)) {
        Ok(records) => records,
        Err(error) => {
            complain(&format!("{}: {error:#}", file.display()));
            return ExitCode::from(2);
        }
    };
    let (mut same, mut different, mut left) = (0, 0, 0);
    let mut out = io::stdout().lock();
    for record in &records {
        let (pool, reason) = (&record.pool, &record.reason);
        // A reader that has gone is no error; the exit code still tells.
        match replay(record) {
            Verdict::Same => same += 1,
            Verdict::Different(what) => {
                different += 1;
                drop(writeln!(out, "{} {pool} {reason}: different: {}", record.id, what.join("; ")));
            }
            Verdict::NotReplayed(why) => {
                left += 1;
                drop(writeln!(out, "{} {pool} {reason}: not replayed: {why}", record.id));
            }
        }
    }
    drop(writeln!(out, "{} decisions: {same} the same, {different} different, {left} not replayed", records.len()));
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn complain(words: &str) {
    drop(writeln!(io::stderr(), "{words}"));
}
