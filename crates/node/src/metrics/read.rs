//! An agent's state for Prometheus.

use std::collections::HashMap;

use crowfly_names::LocalityId;
use crowfly_source::Status;

use super::{Connections, MAX_CONNECTION_ROWS, Scrape};
use crate::agent::Agent;
use crate::maps::{Counters, MapError, Maps, Pair, ServiceId};
use crate::select::Frontend;

/// Reads the state of an agent.
///
/// # Errors
/// The counters cannot be read.
pub fn read<M: Maps>(agent: &Agent<M>) -> Result<Scrape, MapError> {
    let counters = agent.reconciler().maps().counters()?;
    Ok(read_with(agent, &counters))
}

/// The state of an agent, with counters that were read before.
pub(crate) fn read_with<M: Maps>(agent: &Agent<M>, counters: &[(Pair, Counters)]) -> Scrape {
    let (services, reconciler) = (agent.services(), agent.reconciler());
    let mut maps = reconciler.entries();
    maps.push(("stats", counters.len()));
    let mut by_service: HashMap<ServiceId, HashMap<Pair, Counters>> = HashMap::new();
    for (pair, counters) in counters {
        let of = by_service.entry(pair.service).or_default();
        of.insert(*pair, *counters);
    }
    let mut rows = Vec::new();
    for frontend in reconciler.frontends() {
        let counters = reconciler.service_of(frontend);
        let counters = counters.and_then(|service| by_service.remove(&service));
        rows.extend(connections(agent, frontend, &counters.unwrap_or_default()));
    }
    rows.sort_by(|a, b| (&a.frontend, &a.backend).cmp(&(&b.frontend, &b.backend)));
    let left_out = rows.len().saturating_sub(MAX_CONNECTION_ROWS);
    rows.truncate(MAX_CONNECTION_ROWS);
    let capacities = reconciler.maps().capacities();
    let capacity = |map: &str| {
        let mut known = capacities.iter();
        known.find(|known| known.0 == map).map(|known| known.1)
    };
    let sources = services.sources().map(|(name, status, services)| {
        let state = match status {
            Status::Silent => "silent",
            Status::Listing => "listing",
            Status::Synced => "synced",
            Status::Failed(_) => "failed",
        };
        (name.to_string(), state, services)
    });
    Scrape {
        metrics: agent.metrics().clone(),
        connections: rows,
        left_out,
        sources: sources.collect(),
        frontends: services.routes().len(),
        failed: reconciler.failed().len(),
        maps: maps
            .into_iter()
            .map(|(map, entries)| (map, entries, capacity(map)))
            .collect(),
    }
}

/// The label of all backends that left a frontend, and have no name any more.
const GONE: &str = "gone";

/// The connections of a frontend. Backends that left it are among them, because a sum over all backends must not go
/// back.
fn connections<M: Maps>(
    agent: &Agent<M>,
    frontend: &Frontend,
    counters: &HashMap<Pair, Counters>,
) -> Vec<Connections> {
    let services = agent.services();
    let (totals, gone) = agent.reconciler().totals(frontend, counters);
    if totals.is_empty() && gone.is_none() {
        return Vec::new();
    }
    let (Some(owner), Some(selection)) = (services.owner(frontend), services.selection(frontend))
    else {
        return Vec::new();
    };
    let targets = selection.route.targets.iter().zip(&selection.backends);
    let localities: HashMap<_, _> = targets
        .map(|(target, backend)| (target.address, &backend.locality))
        .collect();
    let row = |backend: String, locality: Option<&LocalityId>, counters| Connections {
        service: owner.service.name.to_string(),
        frontend: frontend.to_string(),
        source: owner.source.to_string(),
        backend,
        locality: locality.map(ToString::to_string).unwrap_or_default(),
        counters,
    };
    let rows = totals.into_iter().map(|(address, counters)| {
        let locality = localities.get(&address).copied();
        let locality = locality.filter(|it| **it != LocalityId::default());
        row(address.to_string(), locality, counters)
    });
    let gone = gone.map(|counters| row(GONE.to_owned(), None, counters));
    rows.chain(gone).collect()
}
