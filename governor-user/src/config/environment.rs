//! The environment layer: variables with our prefix. Every one must be a setting, except those of the tools around the daemon
//! and those that Kubernetes adds for Services.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What every variable of ours begins with.
const PREFIX: &str = "GOVERNOR_";

/// Variables that are no settings: of the command line, builds and tests.
const OTHERS: [&str; 9] = [
    "GOVERNOR_BLESS",
    "GOVERNOR_CONFIG",
    "GOVERNOR_EBPF_OBJECT",
    "GOVERNOR_FULL",
    "GOVERNOR_LOG",
    "GOVERNOR_PINGORA",
    "GOVERNOR_PLOTS",
    "GOVERNOR_REQUIRE_KERNEL",
    "GOVERNOR_TOOLS",
];

/// The variables of this process that begin with `GOVERNOR_`. Bytes that are no UTF-8 are replaced, so that no value of
/// a setting matches them.
pub fn of_process() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value))).filter(|(name, _)| name.starts_with(PREFIX))
}

/// The variables that can be settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentLayer {
    /// By name.
    pub variables: BTreeMap<String, String>,
    /// Names of variables that are Service links.
    pub service_links: Vec<String>,
}

impl EnvironmentLayer {
    /// Takes the variables with our prefix.
    pub fn of(environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut layer = Self::default();
        let ours = environment.filter(|(name, _)| name.starts_with(PREFIX) && !OTHERS.contains(&name.as_str()));
        for (name, value) in ours {
            if is_service_link(&name, &value) {
                layer.service_links.push(name);
            } else {
                layer.variables.insert(name, value);
            }
        }
        layer.service_links.sort_unstable();
        layer
    }

    /// What to say of ignored variables, in one line.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let first = self.service_links.first()?;
        let others = match self.service_links.len() - 1 {
            0 => String::new(),
            1 => " and one more".to_owned(),
            count => format!(" and {count} more"),
        };
        Some(format!(
            "ignored environment variables that Kubernetes adds for a Service: {first}{others}; enableServiceLinks: false in \
             the pod leaves them out"
        ))
    }
}

/// Whether Kubernetes or Docker adds this variable for a Service: both its name and its value have their form. No setting
/// takes such a value, except an address for a host.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_port = value.parse::<u16>().is_ok();
    let is_address = value.parse::<IpAddr>().is_ok();
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    if name.ends_with("_SERVICE_HOST") {
        return is_address;
    }
    if let Some((_, port)) = name.rsplit_once("_SERVICE_PORT") {
        return is_port && (port.is_empty() || port.starts_with('_'));
    }
    if name.ends_with("_PORT") && is_url {
        return true;
    }
    // NAME_PORT_80_TCP, and the same with _PROTO, _PORT and _ADDR.
    let Some((_, rest)) = name.rsplit_once("_PORT_").filter(|(_, rest)| !rest.is_empty()).or_else(|| {
        let inner = name.strip_suffix("_PORT")?;
        inner.rsplit_once("_PORT_")
    }) else {
        return false;
    };
    let mut parts = rest.split('_');
    let is_number = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
    let is_protocol = parts.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol));
    let fits = match parts.next() {
        None => is_url || is_port && name.ends_with("_PORT"),
        Some("PROTO") => ["tcp", "udp", "sctp"].contains(&value),
        Some("PORT") => is_port,
        Some("ADDR") => is_address,
        Some(_) => false,
    };
    is_number && is_protocol && fits && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(variables: &[(&str, &str)]) -> EnvironmentLayer {
        EnvironmentLayer::of(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    /// What kubelet sets for a Service, as its documentation lists them.
    fn service(prefix: &str, address: &str) -> Vec<(String, String)> {
        let entries = [
            ("SERVICE_HOST", address.to_owned()),
            ("SERVICE_PORT", "443".to_owned()),
            ("SERVICE_PORT_HTTPS", "443".to_owned()),
            ("SERVICE_PORT_DNS_TCP", "53".to_owned()),
            ("PORT", format!("tcp://{address}:443")),
            ("PORT_443_TCP", format!("tcp://{address}:443")),
            ("PORT_443_TCP_PROTO", "tcp".to_owned()),
            ("PORT_443_TCP_PORT", "443".to_owned()),
            ("PORT_443_TCP_ADDR", address.to_owned()),
            ("PORT_53_UDP", format!("udp://{address}:53")),
            ("PORT_53_UDP_PROTO", "udp".to_owned()),
            ("PORT_53_UDP_PORT", "53".to_owned()),
            ("PORT_53_UDP_ADDR", address.to_owned()),
        ];
        entries.into_iter().map(|(name, value)| (format!("{prefix}_{name}"), value)).collect()
    }

    #[test]
    fn links_of_services_are_ignored_with_one_line() {
        for prefix in ["GOVERNOR", "GOVERNOR_NODE", "GOVERNOR_POOLS_CHAT", "GOVERNOR_DAEMON_SOCKET"] {
            for address in ["10.96.0.1", "fd00::1"] {
                let layer = EnvironmentLayer::of(service(prefix, address).into_iter());
                assert_eq!(layer.variables, BTreeMap::new());
                assert_eq!(layer.service_links.len(), 13);
                let note = layer.note().unwrap();
                assert!(note.contains(&format!("{prefix}_PORT and 12 more")) && !note.contains('\n'), "{note}");
            }
        }
        assert_eq!(layer(&[]).note(), None);
    }

    #[test]
    fn a_variable_with_another_value_is_no_link() {
        let others = [
            ("GOVERNOR_NODE_PORT", "9000"),
            ("GOVERNOR_NODE_SERVICE_HOST", "governor"),
            ("GOVERNOR_NODE_SERVICE_PORT", "many"),
            ("GOVERNOR_NODE_PORT_443_TCP", "443"),
            ("GOVERNOR_NODE_PORT_X_TCP", "tcp://10.0.0.1:1"),
            ("GOVERNOR_NODE_PORT_443_TCP_PROTO", "udp6"),
            ("GOVERNOR_NODE_CAP", "tcp://10.0.0.1:1"),
        ];
        assert_eq!(layer(&others).service_links, [] as [String; 0]);
        assert_eq!(layer(&others).variables.len(), others.len());
    }

    #[test]
    fn variables_of_tools_and_of_others_are_left_out() {
        assert_eq!(layer(&[("GOVERNOR_LOG", "debug"), ("PATH", "/bin")]), EnvironmentLayer::default());
    }
}
