//! Kubernetes as a source: Services and EndpointSlices become services with backends.
//!
//! The reading is exact to what kube-proxy does with the same objects, because users replace it. It has
//! no I/O: [`read_service`] and [`read_slice`] read one object each, and [`Joiner`] brings the
//! two kinds together, in whichever order they come. [`KubernetesSource`] is the driver around them.

mod join;
mod node;
mod notes;
mod service;
mod slice;
mod source;

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::model::Protocol;

pub use join::{Joiner, Refused};
pub use node::{NodeFacts, read_node};
pub use notes::Note;
pub use service::{ReadService, read_service};
pub use slice::{ReadSlice, SharedNames, read_slice};
pub use source::{KUBERNETES_SOURCE, KubernetesError, KubernetesOptions, KubernetesSource};

/// The label that gives a service to another proxy than the cluster's default one.
pub const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// The label of services, and their slices, that have no ClusterIP.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// The selector for Services and EndpointSlices that are for this agent.
pub fn label_selector(proxy_name: Option<&str>) -> String {
    match proxy_name {
        Some(name) => format!("{PROXY_NAME}={name},!{HEADLESS}"),
        None => format!("!{PROXY_NAME},!{HEADLESS}"),
    }
}

/// True if an object is for this agent. The server selects as well; an object whose label has changed
/// may still be here.
fn is_ours(metadata: &ObjectMeta, proxy_name: Option<&str>) -> bool {
    let label = |key| metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(PROXY_NAME) == proxy_name && label(HEADLESS).is_none()
}

/// The reason why an object is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    field: String,
    reason: String,
}

impl Refusal {
    fn new(field: &str, reason: String) -> Self {
        let field = field.to_owned();
        Self { field, reason }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, reason } = self;
        write!(f, "{field}: {reason}")
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    let address: Result<IpAddr, _> = text.parse();
    let address = address.map_err(|_| format!("expected an IP address, got {text:?}"))?;
    // IPv4 in the form of IPv6 would be a second name of the same address.
    let is_second_name = address.to_canonical() != address;
    if address.is_unspecified() || address.is_multicast() || is_second_name {
        return Err(format!("{address} cannot be connected to"));
    }
    Ok(address)
}

fn port(number: i32) -> Result<u16, String> {
    let port = u16::try_from(number).ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("expected 1 to 65535, got {number}"))
}

/// The protocol of a port; `None` for SCTP.
fn protocol(said: Option<&str>) -> Result<Option<Protocol>, String> {
    match said {
        None | Some("" | "TCP") => Ok(Some(Protocol::Tcp)),
        Some("UDP") => Ok(Some(Protocol::Udp)),
        Some("SCTP") => Ok(None),
        Some(other) => Err(format!("expected TCP, UDP or SCTP, got {other:?}")),
    }
}
