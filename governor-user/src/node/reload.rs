//! A reload: file and environment are read again, all or nothing. What it changed goes to the log, the events and its
//! caller, each setting with whether it is in force or waits for a restart.

use super::setting_views as views;
use crate::config::ConfigError;
use crate::node::handle::Handle;
use crate::node::settings::Changed;
use crate::node::sockets::Restored;
use crate::process::clock;
use crate::process::notify;
use crate::records::audit::event;
use governor_api as api;
use serde_json::{Map, Value};

/// Changed settings that an event lists at most; the answer to the caller lists all.
const MOST_IN_EVENT: usize = 64;

/// Why a reload did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// File or environment are not valid; nothing changed.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

/// Reloads for `by`, a user or a signal, and notifies the service manager of it.
///
/// # Errors
/// See [`ReloadError`].
pub async fn reload(handle: &Handle, by: &str) -> Result<api::Reload, ReloadError> {
    notify::reloading();
    let reloaded = apply(handle, by).await;
    match &reloaded {
        Ok(_) => notify::ready("serving"),
        Err(ReloadError::Invalid(error)) => {
            notify::ready(&format!("serving; the last reload failed: {}", error.in_one_line()));
        }
        Err(ReloadError::Stopping) => {}
    }
    reloaded
}

/// Makes sockets again whose files are gone, whatever the configuration is like; what to say of them.
async fn restore_sockets(handle: &Handle, by: &str) -> Vec<String> {
    let Restored { made, failed } = handle.sockets().restore();
    for path in &made {
        tracing::warn!(path, "the file of a socket was gone, and the socket is made again");
        handle.record(event(by, "socket-restored", path, &Value::Null, &Value::Null, None)).await;
    }
    for why in &failed {
        tracing::error!("{why}");
    }
    let made = made.into_iter().map(|path| format!("the socket {path} was gone and is made again"));
    made.chain(failed).collect()
}

async fn apply(handle: &Handle, by: &str) -> Result<api::Reload, ReloadError> {
    let mut warnings = restore_sockets(handle, by).await;
    // Locked until all is in force: a setting changed meanwhile must not be undone by an older policy.
    let mut settings = handle.settings().lock().await;
    let changed = match settings.reload(&clock::wall_time()) {
        Ok(changed) => changed,
        Err(error) => {
            handle.recorder().reload_failed();
            tracing::error!(by, "configuration not reloaded, the one in force stays: {error}");
            let reason = Some(error.in_one_line());
            handle.record(event(by, "reload-failed", "", &Value::Null, &Value::Null, reason)).await;
            return Err(error.into());
        }
    };
    handle.recorder().reloaded();
    let loaded = settings.loaded();
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    handle.obey(&loaded.config).await.ok_or(ReloadError::Stopping)?;
    warnings.extend_from_slice(&loaded.warnings);
    let answer = api::Reload { changes: changed.iter().map(views::reload_change).collect(), warnings };
    drop(settings);
    let pending: Vec<String> = changed.iter().filter(|one| one.is_pending).map(|one| one.path.join(".")).collect();
    if !pending.is_empty() {
        tracing::warn!(settings = pending.join(", "), "changed settings wait for a restart");
    }
    tracing::info!(by, in_force = changed.len() - pending.len(), pending = pending.len(), "configuration reloaded");
    let reason = reason(&changed, &pending);
    let (before, after) = (side(&changed, false), side(&changed, true));
    handle.record(event(by, "reload", "", &before, &after, reason)).await;
    Ok(answer)
}

/// The values of the changed settings by key, before or after.
fn side(changed: &[Changed], after: bool) -> Value {
    let values = changed.iter().take(MOST_IN_EVENT).map(|one| {
        let value = if after { one.after.as_ref() } else { one.before.as_ref() };
        (one.path.join("."), value.map(|one| one.value.to_json()).unwrap_or_default())
    });
    Value::Object(values.collect::<Map<_, _>>())
}

/// What the event says beside its values.
fn reason(changed: &[Changed], pending: &[String]) -> Option<String> {
    let mut facts = Vec::new();
    if let Some(first) = pending.first() {
        let listed = pending.iter().take(MOST_IN_EVENT).skip(1).fold(first.clone(), |all, key| all + ", " + key);
        facts.push(format!("in force after a restart: {listed}"));
    }
    if changed.len() > MOST_IN_EVENT {
        facts.push(format!("{} settings changed, {MOST_IN_EVENT} are listed", changed.len()));
    }
    (!facts.is_empty()).then(|| facts.join("; "))
}

#[cfg(test)]
mod tests {
    use crate::config::schema::{self, settings, variable};
    use crate::config::{Base, Config};

    const FILE: &str = "[pools.chat]\nfair_share = \"max-min\"\n[pools.chat.members.a]\n[pools.chat.traffic.media]\n[classes.own]\n\
        [orgs.acme]\nid = \"000000000000000000000000000000aa\"\n[keys.ci]\nid = \"000000000000000000000000000000bb\"\n\
        [cgroups.\"/a\"]\nmax_connections = 9\n[[tuner.listener]]\nlisten = \":80\"\n";

    const NAMES: [(&str, &str); 8] = [
        ("pools.*.members.*", "pools.chat.members.a"),
        ("pools.*.traffic.*", "pools.chat.traffic.media"),
        ("pools.*", "pools.chat"),
        ("classes.*", "classes.own"),
        ("orgs.*", "orgs.acme"),
        ("keys.*", "keys.ci"),
        ("cgroups.*", "cgroups./a"),
        ("tuner.listener.*", "tuner.listener.:80"),
    ];

    /// One of these is valid for each setting and differs from its default.
    const VALUES: [&str; 25] = [
        "70ms",
        "bypass",
        "1500",
        "cpu_pressure",
        "7",
        "8",
        "40",
        "450",
        "990",
        "529",
        "7s",
        "3m",
        "true",
        "off",
        "on",
        "enforce",
        "max-min",
        "procfs",
        "require",
        "restore",
        "/elsewhere",
        "0600",
        "127.0.0.1:1",
        "tier1",
        "000000000000000000000000000000ab",
    ];

    /// As `config` is after a reload that found `new`: what [`crate::node::reload::reload`] and the stop put in force.
    fn reloaded(config: &Config, new: &Config) -> Config {
        let mut after = config.clone();
        after.policy = new.policy.clone();
        after.tuner = new.tuner.clone();
        after.names = new.names.clone();
        after.daemon.drain_timeout = new.daemon.drain_timeout;
        after
    }

    #[test]
    fn each_setting_waits_for_a_restart_unless_a_reload_applies_it() {
        let load = |environment: Option<(String, String)>| {
            let base = Base::of_text("f", FILE, environment.into_iter());
            base.and_then(|base| base.resolve(&[])).map(|loaded| loaded.config)
        };
        let before = load(None).unwrap();
        // Its two values need different members.
        for row in settings().filter(|row| row.key != "pools.*.unlimited") {
            let named = NAMES.iter().find(|(pattern, _)| row.key.starts_with(pattern));
            let key = named.map_or_else(|| row.key.to_owned(), |(pattern, name)| row.key.replacen(pattern, name, 1));
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            assert!(schema::setting(&path).is_some_and(|found| found.key == row.key), "{key}");
            let other = VALUES.iter().find_map(|value| {
                load(Some((variable(&path), (*value).to_owned()))).ok().filter(|config| *config != before)
            });
            let other = other.unwrap_or_else(|| panic!("{key} has no other value in the list"));
            assert_eq!(row.is_reloaded(), reloaded(&before, &other) == other, "{key}");
            assert!(row.is_reloaded() || !row.is_live(), "{key} is set at run time and not by a reload");
        }
    }
}
