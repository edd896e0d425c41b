//! The state of an agent at one moment, as Prometheus reads it.
//!
//! The state is a copy, because another thread writes it as text while the agent goes on.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{Metrics, UnsignedGauge};
use crate::maps::Counters;

/// The most backends of frontends whose connections are shown. What is beyond it is counted in
/// `connections_left_out`, because a monitoring system must not be flooded by a large node.
pub const MAX_CONNECTION_ROWS: usize = 20_000;

/// The state of an agent.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// The counters of the agent's work.
    pub metrics: Metrics,
    /// The connections of each backend of each frontend that has had any.
    pub connections: Vec<Connections>,
    /// The number of those that are left out.
    pub left_out: usize,
    /// Each source with its state and the number of its services.
    pub sources: Vec<(String, &'static str, usize)>,
    /// The number of frontends.
    pub frontends: usize,
    /// The number of frontends whose last change failed.
    pub failed: usize,
    /// Each map with its entries, and the room in it if that is known.
    pub maps: Vec<(&'static str, usize, Option<u32>)>,
}

/// The connections of a frontend to a backend.
#[derive(Clone, Debug)]
pub struct Connections {
    /// The service, as `namespace/name`.
    pub service: String,
    /// The frontend, as `10.96.0.10:80/TCP`.
    pub frontend: String,
    /// The source of the service.
    pub source: String,
    /// The address of the backend.
    pub backend: String,
    /// The locality of the backend; empty if it has none.
    pub locality: String,
    /// The counters.
    pub counters: Counters,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    service: String,
    frontend: String,
    source: String,
    backend: String,
    locality: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    source: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Source {
    source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Map {
    map: &'static str,
}

/// The states that a source can be in.
const STATES: [&str; 4] = ["silent", "listing", "synced", "failed"];

impl Scrape {
    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// Never: a string takes any text.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("crowfly_node");
        self.metrics.register(&mut registry);
        self.register_connections(&mut registry);
        self.register_sources(&mut registry);
        self.register_maps(&mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn register_connections(&self, registry: &mut Registry) {
        let opened: Family<Labels, Counter> = Family::default();
        let (failed, closed) = (opened_like(), opened_like());
        let active: Family<Labels, UnsignedGauge> = Family::default();
        for row in &self.connections {
            let labels = Labels {
                service: row.service.clone(),
                frontend: row.frontend.clone(),
                source: row.source.clone(),
                backend: row.backend.clone(),
                locality: row.locality.clone(),
            };
            let counters = &row.counters;
            for (family, count) in [
                (&opened, counters.opened),
                (&failed, counters.failed),
                (&closed, counters.closed),
            ] {
                family.get_or_create(&labels).inc_by(count);
            }
            active.get_or_create(&labels).set(counters.active());
        }
        let help = "Connections that were sent to a backend";
        registry.register("connections_opened", help, opened);
        let help = "TCP connections that a backend did not accept";
        registry.register("connections_failed", help, failed);
        let help = "Connections that ended otherwise";
        registry.register("connections_closed", help, closed);
        registry.register("connections_active", "Connections that are open", active);
        let help =
            "Backends of frontends whose connections are not shown, because there are too many";
        registry.register("connections_left_out", help, gauge(self.left_out));
    }

    fn register_sources(&self, registry: &mut Registry) {
        let states: Family<State, UnsignedGauge> = Family::default();
        let services: Family<Source, UnsignedGauge> = Family::default();
        for (source, now, count) in &self.sources {
            for state in STATES {
                let labels = State {
                    source: source.clone(),
                    state,
                };
                let is_so = u64::from(state == *now);
                states.get_or_create(&labels).set(is_so);
            }
            let source = source.clone();
            let services = services.get_or_create(&Source { source });
            services.set(*count as u64);
        }
        let help = "1 for the state that a source is in";
        registry.register("source_state", help, states);
        let help = "Services of a source, also those that are shadowed";
        registry.register("source_services", help, services);
        let help = "Frontends: ClusterIPs with a port";
        registry.register("frontends", help, gauge(self.frontends));
        let help = "Frontends whose last change failed and is tried again";
        registry.register("frontends_failed", help, gauge(self.failed));
    }

    fn register_maps(&self, registry: &mut Registry) {
        let entries: Family<Map, UnsignedGauge> = Family::default();
        let capacity: Family<Map, UnsignedGauge> = Family::default();
        for (map, used, room) in &self.maps {
            entries.get_or_create(&Map { map }).set(*used as u64);
            if let Some(room) = room {
                capacity.get_or_create(&Map { map }).set((*room).into());
            }
        }
        registry.register("map_entries", "Entries of a map", entries);
        registry.register("map_capacity", "The room in a map", capacity);
    }
}

fn opened_like() -> Family<Labels, Counter> {
    Family::default()
}

fn gauge(value: usize) -> UnsignedGauge {
    let gauge = UnsignedGauge::default();
    gauge.set(value as u64);
    gauge
}
