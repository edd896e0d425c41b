//! The load counting of one channel.
//!
//! Each leaf cluster reports to the server that it came from, under an aggregate too (gRFC A75). A channel has
//! one store of counts per such server, which it registers with its xDS client. Channels that share a client share
//! its stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crowfly_client::{LoadRegistration, SharedLoadSource, XdsClient};
use crowfly_lb::{ClusterLoad, LoadPlan, LoadStore, MetricFilter, NamedMetrics};
use crowfly_model::bootstrap::ServerConfig;
use crowfly_model::grpc::cluster::{LoadReporting, MetricPropagation, NamedMetricPropagation};
use tracing::warn;

/// The stores of a channel, by server. Without a client there are none.
#[derive(Debug, Default)]
pub(crate) struct LoadStores {
    client: Option<XdsClient>,
    /// `None` for a server that cannot be reported to.
    stores: HashMap<Arc<ServerConfig>, Option<Registered>>,
}

#[derive(Debug)]
struct Registered {
    source: Arc<Source>,
    /// The registration of the cluster. The rest of its counts is reported when this is dropped.
    _registration: LoadRegistration,
}

#[derive(Debug)]
struct Source(Arc<LoadStore>);

impl LoadStores {
    pub(crate) fn new(client: XdsClient) -> Self {
        Self {
            client: Some(client),
            stores: HashMap::new(),
        }
    }

    /// The store that counts the load of a cluster; `None` if the load is not reported.
    pub(crate) fn plan(&mut self, reporting: &LoadReporting) -> Option<LoadPlan> {
        let server = reporting.server.as_ref()?;
        let client = self.client.as_ref()?;
        let registered = self
            .stores
            .entry(Arc::clone(server))
            .or_insert_with(|| register(client, server));
        let registered = registered.as_ref()?;
        Some(LoadPlan {
            store: Arc::clone(&registered.source.0),
            metrics: Arc::new(filter(&reporting.metrics)),
        })
    }
}

fn register(client: &XdsClient, server: &ServerConfig) -> Option<Registered> {
    let registered = client.report_loads(server, |wake| {
        Arc::new(Source(Arc::new(LoadStore::new(move || wake.wake()))))
    });
    match registered {
        Ok((source, registration)) => Some(Registered {
            source,
            _registration: registration,
        }),
        Err(error) => {
            warn!(server = server.uri.as_str(), %error, "no load is reported");
            None
        }
    }
}

impl SharedLoadSource for Source {
    fn is_in_use(&self) -> bool {
        self.0.is_in_use()
    }

    fn take(&self) -> Vec<ClusterLoad> {
        self.0.take()
    }
}

fn filter(metrics: &MetricPropagation) -> MetricFilter {
    MetricFilter {
        cpu_utilization: metrics.cpu_utilization,
        mem_utilization: metrics.mem_utilization,
        application_utilization: metrics.application_utilization,
        named: match &metrics.named_metrics {
            NamedMetricPropagation::All => NamedMetrics::All,
            NamedMetricPropagation::AllUnprefixed => NamedMetrics::AllUnprefixed,
            NamedMetricPropagation::None => NamedMetrics::None,
            NamedMetricPropagation::Only(names) => {
                NamedMetrics::Only(names.iter().cloned().collect::<BTreeSet<_>>())
            }
        },
    }
}
