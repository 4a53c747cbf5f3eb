//! Envoy as a gateway: its configuration, with a service that is asked about every request or without.

use crate::server::Server;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

/// Starts it on `listen` with one worker. `authz`: the socket of the service that is asked.
pub(crate) fn start(
    program: &Path,
    folder: &Path,
    listen: SocketAddr,
    upstream: SocketAddr,
    authz: Option<&Path>,
) -> Result<Server> {
    let file = folder.join(format!("envoy-{}.json", listen.port()));
    fs::write(&file, configuration(listen, upstream, authz)?.to_string()).context("the folder is not writable")?;
    let mut command = Command::new(program);
    command.arg("--config-path").arg(file);
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
    Server::start("envoy", &mut command, || TcpStream::connect(listen).is_ok())
}

fn configuration(listen: SocketAddr, upstream: SocketAddr, authz: Option<&Path>) -> Result<Value> {
    let mut clusters = vec![cluster("upstream", &address(upstream))];
    let mut filters = Vec::new();
    if let Some(path) = authz {
        clusters.push(cluster("authz", &json!({"pipe": {"path": path.to_str().context("a plain name")?}})));
        filters.push(json!({
            "name": "envoy.filters.http.ext_authz",
            "typed_config": {
                "@type": extension("filters.http.ext_authz.v3.ExtAuthz"),
                "http_service": {"server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "1s"}},
            },
        }));
    }
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": extension("filters.http.router.v3.Router")},
    }));
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]);
    let manager = json!({
        "@type": extension("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": filters,
    });
    let filter = json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": manager});
    Ok(json!({
        "static_resources": {
            "listeners": [{"address": address(listen), "filter_chains": [{"filters": [filter]}]}],
            "clusters": clusters,
        },
    }))
}

fn extension(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn address(of: SocketAddr) -> Value {
    json!({"socket_address": {"address": of.ip().to_string(), "port_value": of.port()}})
}

fn cluster(name: &str, address: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}
