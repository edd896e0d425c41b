//! Authorities: the parts of a bootstrap that are about new-style names (gRFC A47).
//!
//! An authority has servers of its own and a template, by which a target becomes a listener's name.

use super::{ServerBuilder, ServerConfig};
use crate::{
    Validator,
    names::{ResourceName, authority_prefix, expand_template},
};

/// The listener template and the servers of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthorityConfig {
    /// The template that makes a listener's name from a target with this authority.
    pub listener_template: String,
    /// The servers, in order of preference. If the list is empty, the servers of the whole bootstrap are asked.
    pub servers: Vec<ServerConfig>,
}

impl AuthorityConfig {
    /// Describes an authority in code.
    pub fn builder() -> AuthorityBuilder {
        AuthorityBuilder::default()
    }

    pub(super) fn new(
        name: &str,
        listener_template: Option<String>,
        servers: Vec<ServerConfig>,
        v: &mut Validator,
    ) -> Self {
        let prefix = authority_prefix(name);
        let listener_template = match listener_template.filter(|template| !template.is_empty()) {
            None => format!("{prefix}{LISTENER}/%s"),
            Some(template) => {
                v.field("client_listener_resource_name_template", |v| {
                    if template.starts_with(&prefix) {
                        check_template(&template, v);
                    } else {
                        v.error(format!(
                            "expected it to begin with {prefix}, got {template:?}"
                        ));
                    }
                });
                template
            }
        };
        Self {
            listener_template,
            servers,
        }
    }
}

/// An authority as a program describes it.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct AuthorityBuilder {
    listener_template: Option<String>,
    servers: Vec<ServerBuilder>,
}

impl AuthorityBuilder {
    /// Sets the template that makes a listener's name from a target; `%s` is replaced by the service. The template
    /// begins with `xdstp://<authority>/envoy.config.listener.v3.Listener/`. An empty template counts as unset.
    pub fn listener_template(mut self, template: impl Into<String>) -> Self {
        self.listener_template = Some(template.into());
        self
    }

    /// Adds a server. The server is asked if the servers before it cannot be reached.
    pub fn server(mut self, server: impl Into<ServerBuilder>) -> Self {
        self.servers.push(server.into());
        self
    }

    pub(super) fn build(self, name: &str, v: &mut Validator) -> AuthorityConfig {
        let servers = v.field("xds_servers", |v| {
            let servers = self.servers.into_iter().enumerate();
            servers
                .filter_map(|(i, server)| v.index(i, |v| server.build(v)))
                .collect()
        });
        AuthorityConfig::new(name, self.listener_template, servers, v)
    }
}

/// The error for a target whose authority is not in the bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("authority {authority:?} is not in the xDS bootstrap, which has {}", list(.known))]
pub struct UnknownAuthority {
    /// The name of the authority.
    pub authority: String,
    /// The names of the authorities in the bootstrap.
    pub known: Vec<String>,
}

fn list(known: &[String]) -> String {
    if known.is_empty() {
        return "none".to_owned();
    }
    let quoted: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

/// Records an error if the template makes no names of listeners. The template is checked here, because otherwise the
/// first channel would fail.
pub(super) fn check_template(template: &str, v: &mut Validator) {
    let name = expand_template(template, "service");
    match ResourceName::parse(&name) {
        Ok(None) => {}
        Ok(Some(name)) if name.resource_type() == LISTENER => {}
        Ok(Some(name)) => v.error(format!(
            "expected the resource type {LISTENER}, got {} in {template:?}",
            name.resource_type()
        )),
        Err(_) => v.error(format!(
            "expected xdstp://authority/type/id, got {template:?}"
        )),
    }
}

/// The type in new-style names of listeners.
const LISTENER: &str = "envoy.config.listener.v3.Listener";
