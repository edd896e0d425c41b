//! Counters of streams, responses and reloads, for Prometheus.
//!
//! An operator notices NACKs and failed reloads by them, because clients go on with their last
//! configuration.

mod histogram;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crowfly_xds::Snapshot;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::descriptors;
use crate::limits::LimitMetrics;
use crate::loads::{self, LoadLabels, Loads};
use histogram::Histogram;

/// The upper bounds of times, in seconds: from a change that a client takes at once to one that it
/// takes after a restart.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// The upper bounds of sizes, in bytes. gRPC clients take up to 4 MiB if not told otherwise.
const BYTES: &[f64] = &[
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// The counters of one control plane; clones share them. Each stream has some, so they are small.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    streams: Gauge,
    responses: Family<TypeLabel, Counter>,
    acks: Family<TypeLabel, Counter>,
    nacks: Family<TypeLabel, Counter>,
    stale: Family<TypeLabel, Counter>,
    refusing: Family<TypeLabel, Gauge>,
    push: Histograms,
    convergence: Histograms,
    bytes: Histograms,
    snapshots: Counter,
    triggers: Family<TriggerLabel, Counter>,
    reloads: Family<ResultLabel, Counter>,
    resources: Family<TypeLabel, Gauge>,
    last_success: Gauge,
    /// The counters of connections and limits.
    limits: LimitMetrics,
    /// The names in load reports that have labels of their own.
    load_labels: LoadLabels,
    /// The counters of each type that was asked for.
    types: RwLock<BTreeMap<String, Arc<TypeMetrics>>>,
}

type Histograms = Family<TypeLabel, Histogram, fn() -> Histogram>;

impl Default for Counters {
    fn default() -> Self {
        let seconds = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        Self {
            limits: LimitMetrics::default(),
            load_labels: LoadLabels::default(),
            streams: Gauge::default(),
            responses: Family::default(),
            acks: Family::default(),
            nacks: Family::default(),
            stale: Family::default(),
            refusing: Family::default(),
            push: seconds(),
            convergence: seconds(),
            bytes: Histograms::new_with_constructor(|| Histogram::new(BYTES)),
            snapshots: Counter::default(),
            triggers: Family::default(),
            reloads: Family::default(),
            resources: Family::default(),
            last_success: Gauge::default(),
            types: RwLock::default(),
        }
    }
}

/// The counters of one type. A stream keeps them, because to look them up takes a lock that all
/// streams share.
#[derive(Debug)]
pub(crate) struct TypeMetrics {
    pub(crate) responses: Counter,
    pub(crate) acks: Counter,
    pub(crate) nacks: Counter,
    pub(crate) stale: Counter,
    pub(crate) refusing: Gauge,
    pub(crate) push: Histogram,
    pub(crate) convergence: Histogram,
    pub(crate) bytes: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    r#type: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TriggerLabel {
    trigger: &'static str,
}

/// The reason why the configuration is read again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trigger {
    /// A file changed.
    File,
    /// The program that runs the control plane asked for it, as `crowfly control` does at SIGHUP.
    Request,
}

impl Metrics {
    /// All counters, and the loads, in the OpenMetrics text format.
    pub(crate) fn encode(&self, loads: &Loads) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("crowfly_control");
        self.register(&mut registry);
        loads::register(loads, &self.0.load_labels, &mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The counters of connections and limits.
    pub(crate) fn limits(&self) -> &LimitMetrics {
        &self.0.limits
    }

    pub(crate) fn stream_opened(&self) {
        self.0.streams.inc();
    }

    pub(crate) fn stream_closed(&self) {
        self.0.streams.dec();
    }

    /// The counters of a type. All types that are not known share theirs.
    pub(crate) fn of_type(&self, type_url: &str) -> Arc<TypeMetrics> {
        let label = label(type_url);
        let known = self.0.types.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&label.r#type) {
            return Arc::clone(known);
        }
        drop(known);
        let made = TypeMetrics {
            responses: self.0.responses.get_or_create_owned(&label),
            acks: self.0.acks.get_or_create_owned(&label),
            nacks: self.0.nacks.get_or_create_owned(&label),
            stale: self.0.stale.get_or_create_owned(&label),
            refusing: self.0.refusing.get_or_create_owned(&label),
            push: self.0.push.get_or_create_owned(&label),
            convergence: self.0.convergence.get_or_create_owned(&label),
            bytes: self.0.bytes.get_or_create_owned(&label),
        };
        let mut types = self.0.types.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(types.entry(label.r#type).or_insert_with(|| Arc::new(made)))
    }

    pub(crate) fn triggered(&self, trigger: Trigger) {
        let trigger = match trigger {
            Trigger::File => "file",
            Trigger::Request => "request",
        };
        self.0
            .triggers
            .get_or_create(&TriggerLabel { trigger })
            .inc();
    }

    pub(crate) fn reload(&self, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.0.reloads.get_or_create(&ResultLabel { result }).inc();
        if ok {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since_epoch.unwrap_or_default().as_secs();
            self.0
                .last_success
                .set(seconds.try_into().unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn snapshot(&self, snapshot: &Snapshot) {
        self.0.snapshots.inc();
        self.0.resources.clear();
        for (type_url, of) in snapshot.types() {
            let count = of.resources().len().try_into().unwrap_or(i64::MAX);
            self.0.resources.get_or_create(&label(type_url)).set(count);
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("streams", "Open ADS streams", self.0.streams.clone());
        registry.register("responses", "Responses sent", self.0.responses.clone());
        registry.register("acks", "Responses that were accepted", self.0.acks.clone());
        registry.register("nacks", "Responses that were refused", self.0.nacks.clone());
        let help = "Requests that answered a response which was not the newest";
        registry.register("stale_requests", help, self.0.stale.clone());
        let help = "Clients that refuse a resource now";
        registry.register("clients_refusing", help, self.0.refusing.clone());
        let help = "Time from a change until it was given to the connection of a client";
        registry.register("push_seconds", help, self.0.push.clone());
        let help = "Time from a change until a client accepted it";
        registry.register("convergence_seconds", help, self.0.convergence.clone());
        let help = "Size of a response";
        registry.register("response_bytes", help, self.0.bytes.clone());
        let help = "Snapshots that were served";
        registry.register("snapshots", help, self.0.snapshots.clone());
        let help = "Reasons for which the configuration was read again";
        registry.register("reload_triggers", help, self.0.triggers.clone());
        let help = "Times the configuration was read, and what came of it";
        registry.register("reloads", help, self.0.reloads.clone());
        let help = "Resources in the current snapshot";
        registry.register("resources", help, self.0.resources.clone());
        let help = "When the configuration was last read without an error, as Unix time";
        let name = "last_reload_success_timestamp_seconds";
        registry.register(name, help, self.0.last_success.clone());
        self.0.limits.register(registry);
    }
}

/// The label of a type: its name, if the message is known. A client may ask for any type, and must
/// not fill our memory with labels that it invents.
fn label(type_url: &str) -> TypeLabel {
    let known = descriptors::of_type_url(type_url);
    let name = known.map_or_else(|_| "other".to_owned(), |known| known.full_name().to_owned());
    TypeLabel { r#type: name }
}

#[cfg(test)]
mod tests {
    use crowfly_model::ResourceType;
    use crowfly_model::grpc::Cluster;
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    /// F-07: the time of the last success is not that of a failure.
    #[test]
    fn a_failed_reload_is_no_success() {
        let metrics = Metrics::default();
        metrics.reload(false);
        assert_eq!(metrics.0.last_success.get(), 0);
        metrics.reload(true);
        assert!(metrics.0.last_success.get() > 0);
    }

    /// F-07: a type that is gone is counted no more.
    #[test]
    fn resources_are_those_of_the_newest_snapshot() {
        let metrics = Metrics::default();
        let mut builder = Snapshot::builder();
        let type_url = Cluster::TYPE_URL.to_owned();
        let value = Vec::new();
        builder.set("a", Any { type_url, value });
        metrics.snapshot(&builder.build());
        let count = || {
            let of_type = metrics.0.resources.get(&label(Cluster::TYPE_URL));
            of_type.map(|count| count.get())
        };
        assert_eq!(count(), Some(1));
        metrics.snapshot(&Snapshot::default());
        assert_eq!(count(), None);
    }
}
