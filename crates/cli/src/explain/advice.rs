//! Advice on the next step, where the error makes it obvious. An explanation ends with it, because
//! an error alone does not tell an operator where to look.

use crowfly_xds::{ResolveError, ResourceError, TroubleReason};

/// The advice for an error of a resource or a DNS name.
pub(super) fn for_resource(error: &ResourceError) -> Option<String> {
    let ResourceError {
        noun,
        name,
        reason,
        node,
    } = error;
    let advice = match reason {
        TroubleReason::Connectivity(_) => {
            "is the control plane up, and is its address in the bootstrap right?".to_owned()
        }
        TroubleReason::Deleted => format!(
            "the server says that there is none: does the control plane serve {noun} {name} to \
             node {node}?"
        ),
        TroubleReason::Dns(_) => {
            let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
            format!("does {host} resolve on this machine (getent ahosts {host})?")
        }
        TroubleReason::Invalid(_) => {
            format!("this client refuses the {noun} {name}: correct it in the control plane")
        }
        TroubleReason::Name(_) => format!("correct the name of the {noun} where it is referred to"),
        TroubleReason::Reported { .. } => {
            format!("the control plane's own log should say more about {noun} {name}")
        }
        TroubleReason::Slow(_) => "is the control plane overloaded?".to_owned(),
        TroubleReason::TimedOut(_) => format!(
            "the server never sent {noun} {name}: does the control plane serve it to node {node}?"
        ),
        TroubleReason::UnknownAuthority(_) => {
            "add the authority to the bootstrap, or correct the name".to_owned()
        }
        // A later version of the client may know other reasons.
        _ => return None,
    };
    Some(advice)
}

/// The advice for an error before any virtual host was chosen. `domains` are those of the route
/// configuration.
pub(super) fn for_base(error: &ResolveError, domains: &[String]) -> Option<String> {
    match error {
        ResolveError::NoVirtualHost { authority, .. } => Some(match domains {
            [] => format!("the route configuration is empty: add a virtual host for {authority}"),
            _ => format!(
                "the domains are {}: add {authority}, or choose one with --authority",
                domains.join(", ")
            ),
        }),
        ResolveError::Resource(error) => for_resource(error),
        ResolveError::SocketListener(_) => {
            Some("it is for servers: give clients a listener with an api_listener".to_owned())
        }
        _ => None,
    }
}
