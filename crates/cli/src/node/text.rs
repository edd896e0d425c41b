//! The state of an agent as text for a person. Scripts read the JSON form of the same state.

use std::fmt::Write;
use std::net::SocketAddr;

use crowfly_node::view::{FrontendView, ShadowedView, View};

use crate::output::printable;

/// Every frontend with its backends.
pub(super) fn services(view: &View) -> String {
    let mut text = head(view);
    for frontend in &view.frontends {
        text.push('\n');
        text.push_str(&self::frontend(frontend, false));
    }
    if view.frontends.is_empty() {
        text.push_str("\nno frontends\n");
    }
    text.trim_end().to_owned()
}

/// The frontends of an address, with the backends that are out.
pub(super) fn trace(view: &View, address: SocketAddr, found: &[&FrontendView]) -> String {
    let mut text = head(view);
    for found in found {
        text.push('\n');
        text.push_str(&frontend(found, true));
    }
    if found.is_empty() {
        let mut others = view.frontends.iter();
        let has_ip = others.any(|it| it.address.ip() == address.ip());
        let why = match has_ip {
            true => "its ClusterIP has no such port",
            false => "no service has that ClusterIP",
        };
        let _ = write!(text, "\n{address} is not routed: {why}");
    }
    text.trim_end().to_owned()
}

fn head(view: &View) -> String {
    let mut text = String::new();
    let node = view.node.as_deref().unwrap_or("(no name)");
    let zone = view.zone.as_deref().unwrap_or("(none)");
    let _ = writeln!(text, "node {}, zone {}", printable(node), printable(zone));
    for source in &view.sources {
        let (name, status) = (&source.name, printable(&source.status));
        let services = source.services;
        let _ = write!(text, "source {name}: {status}, {services} services");
        if let Some(error) = &source.last_error {
            let (at, reason) = (printable(&error.at), printable(&error.reason));
            // While it lasts, the status has the reason.
            match source.status.starts_with("failed") {
                true => drop(write!(text, ", since {at}")),
                false => drop(write!(text, "; last error at {at}: {reason}")),
            }
        }
        text.push('\n');
    }
    for refused in &view.refused {
        let (service, source) = (printable(&refused.service), &refused.source);
        let reason = printable(&refused.reason);
        let _ = writeln!(text, "! {service} ({source}) is not routed: {reason}");
    }
    text
}

fn frontend(frontend: &FrontendView, in_full: bool) -> String {
    let mut text = String::new();
    let FrontendView {
        address,
        protocol,
        service,
        port,
        source,
        ..
    } = frontend;
    let port = match port.as_str() {
        "" => String::new(),
        name => format!(" port {}", printable(name)),
    };
    let _ = write!(
        text,
        "{address} {protocol}  {}{port}  from {source}",
        printable(service)
    );
    if let Some(seconds) = frontend.affinity_seconds {
        let _ = write!(text, ", affinity {seconds} s");
    }
    text.push('\n');
    if let Some(error) = &frontend.error {
        let _ = writeln!(text, "  ! not in force: {}", printable(error));
    }
    if !frontend.waits_for.is_empty() {
        let sources = frontend.waits_for.join(", ");
        let _ = writeln!(
            text,
            "  ! not in force yet: as before the restart, until the agent has heard of {sources}"
        );
    }
    for shadowed in &frontend.shadowed {
        let ShadowedView {
            service,
            source,
            reason,
        } = shadowed;
        let (service, reason) = (printable(service), printable(reason));
        let _ = writeln!(text, "  shadows {service} ({source}): {reason}");
    }
    for backend in &frontend.backends {
        let _ = writeln!(
            text,
            "  -> {:<24} weight {:<5} {:>5.1} %  {} opened, {} active, {} failed{}",
            backend.address.to_string(),
            backend.weight,
            100.0 * backend.share,
            backend.opened,
            backend.active,
            backend.failed,
            in_cluster(backend.cluster.as_deref())
        );
    }
    if let Some(without) = &frontend.without {
        let error = match without.as_str() {
            "unreachable" => "EHOSTUNREACH: the service wants a backend on this node",
            _ => "ECONNREFUSED: no backend can be used",
        };
        let _ = writeln!(text, "  no backend: {error}");
    }
    if in_full {
        for left in &frontend.left_out {
            let cluster = in_cluster(left.cluster.as_deref());
            let _ = writeln!(text, "  x  {:<24} {}{cluster}", left.address, left.reason);
        }
    }
    text
}

fn in_cluster(cluster: Option<&str>) -> String {
    cluster.map_or_else(String::new, |name| {
        format!("  (cluster {})", printable(name))
    })
}
