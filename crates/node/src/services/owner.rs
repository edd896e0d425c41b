//! The owner of a frontend, and the services that it shadows.
//!
//! Users see both, because the rules of precedence are many: `services` says for each frontend who has it and why others
//! have not.

use std::fmt;
use std::sync::Arc;

use super::Services;
use crate::model::{Service, ServiceName, ServicePort};
use crate::select::Frontend;

/// The service that a frontend belongs to.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The service.
    pub service: &'a Arc<Service>,
    /// The port of it that the frontend is.
    pub port: &'a ServicePort,
    /// The name of its source.
    pub source: &'a Arc<str>,
    /// Shadowed services: they claim the ClusterIP, and another service has it.
    pub shadowed: Vec<Shadowed<'a>>,
    pub(super) rank: usize,
}

/// A shadowed service: it claims a ClusterIP, and another service has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowed<'a> {
    /// Its name.
    pub service: &'a ServiceName,
    /// The name of its source.
    pub source: &'a Arc<str>,
    /// The reason why another one has the ClusterIP.
    pub reason: Shadow<'a>,
}

/// A reason why a service does not have its ClusterIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shadow<'a> {
    /// The owner's source comes before its own.
    LaterSource,
    /// The owner is of the same source, and comes first by name.
    LaterName,
    /// It prefers this source, which is the owner's.
    Prefers(&'a Arc<str>),
    /// The first of all that claim the ClusterIP prefers this source, which is the owner's.
    FirstPrefers(&'a Arc<str>),
}

impl fmt::Display for Shadow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LaterSource => f.write_str("its source comes later"),
            Self::LaterName => f.write_str("same source, and its name comes later"),
            Self::Prefers(source) => write!(f, "it prefers the source {source}"),
            Self::FirstPrefers(source) => {
                write!(f, "the first claimant prefers the source {source}")
            }
        }
    }
}

impl Services {
    /// The service behind a frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<Owner<'_>> {
        let address = &frontend.address;
        let owner = self.claimant(address)?;
        let mut ports = owner.value.ports.iter();
        let port =
            ports.find(|port| (port.port, port.protocol) == (frontend.port, frontend.protocol))?;
        let source = self.sources.get(owner.source)?;
        let mut is_before = true;
        let mut shadowed = Vec::new();
        for (nth, other) in self.merged.claimants(address).enumerate() {
            if (other.source, other.key) == (owner.source, owner.key) {
                is_before = false;
                continue;
            }
            let reason = match (is_before, nth) {
                (true, 0) => Shadow::Prefers(source),
                (true, _) => Shadow::FirstPrefers(source),
                (false, _) if other.source == owner.source => Shadow::LaterName,
                (false, _) => Shadow::LaterSource,
            };
            shadowed.push(Shadowed {
                service: other.key,
                source: self.sources.get(other.source)?,
                reason,
            });
        }
        Some(Owner {
            service: owner.value,
            port,
            source,
            shadowed,
            rank: owner.source,
        })
    }
}
