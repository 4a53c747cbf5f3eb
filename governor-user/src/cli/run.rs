//! From the arguments to the exit code: picks the subcommand, writes its answer once, maps every end to a code.

use super::answer::{Answer, Error, Exit};
use super::args::{Args, Command, Explained, Format, MemberAction};
use crate::cli::admission::advise;
use crate::cli::admission::explain;
use crate::cli::admission::key;
use crate::cli::admission::key_hash;
use crate::cli::admission::keys;
use crate::cli::admission::leases;
use crate::cli::admission::member;
use crate::cli::admission::members;
use crate::cli::admission::pools;
use crate::cli::admission::refusals;
use crate::cli::asking::client::Client;
use crate::cli::help::command::command;
use crate::cli::help::completions;
use crate::cli::help::manual;
use crate::cli::node::bypass;
use crate::cli::node::clean;
use crate::cli::node::config;
use crate::cli::node::doctor;
use crate::cli::node::drain;
use crate::cli::node::events;
use crate::cli::node::reload;
use crate::cli::node::set;
use crate::cli::node::status;
use crate::cli::sockets::cgroups;
use crate::cli::sockets::explain_listener;
use crate::cli::sockets::listeners;
use crate::cli::sockets::namespaces;
use crate::cli::sockets::tune;
use crate::cli::text::render::Style;
use clap::FromArgMatches;
use governor_api::{KeyOverrideRequest, MemberOrder, MemberRequest, RefusalsQuery};
use governor_observation::wording::chain;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs `governorctl` on the arguments of the process and says how it ended. A usage error or `--help` ends the
/// process itself.
#[must_use]
pub fn main() -> ExitCode {
    completions::answer_shell();
    let args = Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let (answer, exit) = match dispatch(args) {
        Ok(answer) => (answer.text, answer.exit),
        Err(error) => {
            // That standard error is closed cannot be reported anywhere.
            drop(writeln!(io::stderr(), "governorctl: {}", chain(&error)));
            (String::new(), error.exit())
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
        // `governorctl … | head` has read what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok.into(),
        Err(source) => {
            let error = Error::Local { doing: "write the answer", source };
            drop(writeln!(io::stderr(), "governorctl: {}", chain(&error)));
            error.exit().into()
        }
        Ok(()) => exit.into(),
    }
}

/// What every subcommand needs: the control client and a way to show the answer.
#[derive(Debug)]
pub(super) struct Ctl {
    /// The daemon.
    pub(super) client: Client,
    format: Format,
    style: Style,
}

impl Ctl {
    /// Shows a value: as JSON, or as what `table` makes of it.
    pub(super) fn show<T: Serialize>(&self, value: &T, table: impl FnOnce(&T, &Style) -> String) -> Answer {
        Answer::ok(match self.format {
            Format::Table => table(value, &self.style),
            Format::Json => {
                let mut text = serde_json::to_string_pretty(value).expect("API types have string keys and serialize");
                text.push('\n');
                text
            }
        })
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Negative => Self::from(1),
            Exit::Unreachable => Self::from(3),
        }
    }
}

fn dispatch(args: Args) -> Result<Answer, Error> {
    let socket = if let Command::Reload { config } = &args.command {
        reload::control_socket(args.socket, config.clone())
    } else {
        args.socket
    };
    let ctl = Ctl { client: Client::new(socket)?, format: args.format, style: Style::of_stdout() };
    match args.command {
        Command::Status => status::run(&ctl),
        Command::Listeners { groups: true, .. } => listeners::groups(&ctl),
        Command::Listeners { closed: true, .. } => listeners::closed(&ctl),
        Command::Listeners { .. } => listeners::run(&ctl),
        Command::Cgroups => cgroups::run(&ctl),
        Command::Namespaces => namespaces::run(&ctl),
        Command::Pools { members } => pools::run(&ctl, members),
        Command::Members { pool } => members::run(&ctl, pool),
        Command::Member { member, order } => {
            let (order, for_seconds, reason) = match order {
                MemberAction::Up => (MemberOrder::Up, None, None),
                MemberAction::Cool { duration, reason } => (MemberOrder::Cool, Some(duration), reason),
                MemberAction::Drain { reason } => (MemberOrder::Drain, None, reason),
                MemberAction::Undrain => (MemberOrder::Undrain, None, None),
            };
            member::run(&ctl, &member, &MemberRequest { order, for_seconds, reason })
        }
        Command::Drain { undo: true, .. } => drain::undo(&ctl),
        Command::Drain { wait, reason, .. } => drain::run(&ctl, wait, reason),
        Command::Keys { orgs: true, .. } => keys::orgs(&ctl),
        Command::Keys { pool, orgs: false } => keys::run(&ctl, pool),
        Command::Key { key: Some(key), clear: true, .. } => key::clear(&ctl, &key),
        Command::Key { key: Some(name), cap, weight, floor, suspend, duration, reason, unset, .. } => {
            let suspend = suspend.then_some(true);
            let order = KeyOverrideRequest { cap, weight, floor, suspend, for_seconds: duration, reason, unset };
            key::set(&ctl, &name, &order)
        }
        Command::Key { hash: true, secret_file, .. } => key_hash::run(&ctl, secret_file.as_deref()),
        Command::Key { key: None, .. } => key::list(&ctl),
        Command::Events { last } => events::run(&ctl, last),
        Command::Leases { pool, idle } => leases::run(&ctl, pool, idle),
        Command::Refusals { key, pool, reason, since, limit, observed } => {
            let (since_seconds, limit, observed) = (Some(since), Some(limit), u8::from(observed));
            refusals::run(&ctl, RefusalsQuery { key, pool, reason, since_seconds, limit, observed })
        }
        Command::Explain { what: Some(Explained::Listener { place }), .. } => explain_listener::run(&ctl, &place),
        Command::Explain { what: None, id } => explain::run(&ctl, &id.unwrap_or_default()),
        Command::Advise { last } => advise::run(&ctl, last),
        Command::Set { key, value } => set::set(&ctl, &key, &value),
        Command::Unset { key } => set::unset(&ctl, &key),
        Command::Bypass { switch } => bypass::run(&ctl, &switch),
        Command::Tune { order: Some(order), .. } => tune::order(&ctl, order),
        Command::Tune { dry_run: true, .. } => tune::dry_run(&ctl),
        Command::Tune { last, .. } => tune::run(&ctl, last),
        Command::Config { origin } => config::run(&ctl, origin),
        Command::Reload { .. } => reload::run(&ctl),
        Command::Doctor { clean: false, .. } => doctor::run(&ctl),
        Command::Doctor { clean: true, config } => clean::run(&ctl, config),
        Command::Manual { folder } => manual::run(&folder),
        Command::Completions { shell } => completions::run(shell),
    }
}
