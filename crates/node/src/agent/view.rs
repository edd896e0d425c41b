//! The state of an agent as data, for `services` and `trace`.
//!
//! The caller gives the counters of connections, because reading them takes long and is done on another thread.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Agent;
use crate::maps::{Counters, MapError, Maps, Pair};
use crate::select::{Frontend, Without};
use crate::view::{
    BackendView, ErrorView, FrontendView, LeftOutView, RefusedView, ShadowedView, SourceView, View,
};

impl<M: Maps> Agent<M> {
    /// The state, with counters as they are now.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn view(&self) -> Result<View, MapError> {
        let counters = self.reconciler.maps().counters()?;
        Ok(self.view_with(&counters))
    }

    /// The state, with counters that the caller has read.
    pub(crate) fn view_with(&self, counters: &[(Pair, Counters)]) -> View {
        let counters: HashMap<_, _> = counters.iter().copied().collect();
        let sources = self.services.sources().zip(&self.failures);
        let sources = sources.map(|((name, status, services), failure)| SourceView {
            name: name.to_string(),
            status: status.to_string(),
            services,
            last_error: failure.as_ref().map(|failure| ErrorView {
                reason: failure.reason.to_string(),
                at: humantime::format_rfc3339_seconds(failure.at).to_string(),
            }),
        });
        let refused = self.services.refused();
        let refused = refused.map(|(service, source, reason)| RefusedView {
            service: service.to_string(),
            source: source.to_string(),
            reason: reason.to_string(),
        });
        let place = self.services.place();
        let frontends = self.services.routes().keys();
        View {
            node: place.node.as_deref().map(str::to_owned),
            zone: place.zone.as_deref().map(str::to_owned),
            sources: sources.collect(),
            refused: refused.collect(),
            frontends: frontends
                .filter_map(|frontend| self.frontend(frontend, &counters))
                .collect(),
        }
    }

    fn frontend(
        &self,
        frontend: &Frontend,
        counters: &HashMap<Pair, Counters>,
    ) -> Option<FrontendView> {
        let owner = self.services.owner(frontend)?;
        let selection = self.services.selection(frontend)?;
        let route = &selection.route;
        let connections = self.reconciler.connections(frontend, counters);
        let targets = route.targets.iter();
        let total: u64 = targets.map(|target| u64::from(target.weight.get())).sum();
        let targets = route.targets.iter().zip(&selection.backends);
        let backends = targets.map(|(target, backend)| {
            let counters = connections.get(&target.address).copied();
            let counters = counters.unwrap_or_default();
            BackendView {
                address: target.address,
                cluster: backend.remote_cluster.as_deref().map(str::to_owned),
                weight: target.weight.get(),
                share: f64::from(target.weight.get()) / total as f64,
                opened: counters.opened,
                active: counters.active(),
                failed: counters.failed,
            }
        });
        let error = self.reconciler.failed().get(frontend);
        let shadowed = owner.shadowed.iter().map(|shadowed| ShadowedView {
            service: shadowed.service.to_string(),
            source: shadowed.source.to_string(),
            reason: shadowed.reason.to_string(),
        });
        let without = match route.without {
            Without::Refused => "refused",
            Without::Unreachable => "unreachable",
        };
        let left_out = selection.left_out.iter().map(|left| LeftOutView {
            address: left.address.clone(),
            cluster: left.cluster.as_deref().map(str::to_owned),
            reason: left.reason.to_string(),
        });
        let waits_for = self.waits_for(frontend);
        Some(FrontendView {
            address: SocketAddr::new(frontend.address, frontend.port),
            protocol: frontend.protocol.to_string(),
            service: owner.service.name.to_string(),
            port: owner.port.name.to_string(),
            source: owner.source.to_string(),
            shadowed: shadowed.collect(),
            affinity_seconds: route.affinity.map(|timeout| timeout.as_secs()),
            programmed: error.is_none()
                && waits_for.is_empty()
                && self.reconciler.is_programmed(frontend),
            waits_for,
            error: error.map(ToString::to_string),
            without: route.targets.is_empty().then(|| without.to_owned()),
            backends: backends.collect(),
            left_out: left_out.collect(),
        })
    }
}
