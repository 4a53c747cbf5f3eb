//! The task that owns the connection to the daemon.

use std::sync::Arc;
use std::time::Duration;

use governor_common::wire::reply::{Origin, Overload};
use tokio::sync::{mpsc, watch};

use crate::client::{Command, Counters, View};
use crate::config::Config;
use crate::error::Refused;

pub(crate) fn start(_config: Config, mut commands: mpsc::UnboundedReceiver<Command>, _counters: Arc<Counters>) -> View {
    let (overload_tx, overload) = watch::channel(Overload::default());
    let (connected_tx, connected) = watch::channel(false);
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            if let Command::Acquire { reply, .. } = command {
                let detail = "the governor is away".to_owned();
                drop(reply.send(Err(Refused::local(
                    529,
                    Origin::Node,
                    "governor_away",
                    Duration::from_secs(1),
                    detail,
                ))));
            }
        }
        drop((overload_tx, connected_tx));
    });
    View { overload, connected }
}
