//! Counters of streams, responses and reloads, for Prometheus.
//!
//! An operator notices NACKs and failed reloads by them, because clients go on with their last
//! configuration.

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
use crate::loads::{self, Loads};

/// The counters of one control plane; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    streams: Gauge,
    responses: Family<TypeLabel, Counter>,
    acks: Family<TypeLabel, Counter>,
    nacks: Family<TypeLabel, Counter>,
    stale: Family<TypeLabel, Counter>,
    reloads: Family<ResultLabel, Counter>,
    resources: Family<TypeLabel, Gauge>,
    last_success: Gauge,
    /// The counters of each type that was asked for.
    types: Arc<RwLock<BTreeMap<String, Arc<TypeMetrics>>>>,
}

/// The counters of one type. A stream keeps them, because to look them up takes a lock that all
/// streams share.
#[derive(Debug)]
pub(crate) struct TypeMetrics {
    pub(crate) responses: Counter,
    pub(crate) acks: Counter,
    pub(crate) nacks: Counter,
    pub(crate) stale: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    r#type: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl Metrics {
    /// All counters, and the loads, in the OpenMetrics text format.
    pub(crate) fn encode(&self, loads: &Loads) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("crowfly_control");
        self.register(&mut registry);
        loads::register(loads, &mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    pub(crate) fn stream_opened(&self) {
        self.streams.inc();
    }

    pub(crate) fn stream_closed(&self) {
        self.streams.dec();
    }

    /// The counters of a type. All types that are not known share theirs.
    pub(crate) fn of_type(&self, type_url: &str) -> Arc<TypeMetrics> {
        let label = label(type_url);
        let known = self.types.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&label.r#type) {
            return Arc::clone(known);
        }
        drop(known);
        let made = TypeMetrics {
            responses: self.responses.get_or_create_owned(&label),
            acks: self.acks.get_or_create_owned(&label),
            nacks: self.nacks.get_or_create_owned(&label),
            stale: self.stale.get_or_create_owned(&label),
        };
        let mut types = self.types.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(types.entry(label.r#type).or_insert_with(|| Arc::new(made)))
    }

    pub(crate) fn reload(&self, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.reloads.get_or_create(&ResultLabel { result }).inc();
        if ok {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since_epoch.unwrap_or_default().as_secs();
            self.last_success
                .set(seconds.try_into().unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn snapshot(&self, snapshot: &Snapshot) {
        self.resources.clear();
        for (type_url, of) in snapshot.types() {
            let count = of.resources().len().try_into().unwrap_or(i64::MAX);
            self.resources.get_or_create(&label(type_url)).set(count);
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("streams", "Open ADS streams", self.streams.clone());
        registry.register("responses", "Responses sent", self.responses.clone());
        registry.register("acks", "Responses that were accepted", self.acks.clone());
        registry.register("nacks", "Responses that were refused", self.nacks.clone());
        let help = "Requests that answered a response which was not the newest";
        registry.register("stale_requests", help, self.stale.clone());
        let help = "Times the configuration was read, and what came of it";
        registry.register("reloads", help, self.reloads.clone());
        let help = "Resources in the current snapshot";
        registry.register("resources", help, self.resources.clone());
        let help = "When the configuration was last read without an error, as Unix time";
        let name = "last_reload_success_timestamp_seconds";
        registry.register(name, help, self.last_success.clone());
    }
}

/// The label of a type: its name, if the message is known. A client may ask for any type, and must
/// not fill our memory with labels that it invents.
fn label(type_url: &str) -> TypeLabel {
    let known = descriptors::of_type_url(type_url);
    let name = known.map_or_else(|_| "other".to_owned(), |known| known.full_name().to_owned());
    TypeLabel { r#type: name }
}
