//! Counters of streams, responses and reloads, for Prometheus.
//!
//! An operator notices NACKs and failed reloads by them, because clients go on with their last
//! configuration.

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

    pub(crate) fn response(&self, type_url: &str) {
        self.responses.get_or_create(&label(type_url)).inc();
    }

    pub(crate) fn ack(&self, type_url: &str) {
        self.acks.get_or_create(&label(type_url)).inc();
    }

    pub(crate) fn nack(&self, type_url: &str) {
        self.nacks.get_or_create(&label(type_url)).inc();
    }

    pub(crate) fn stale(&self, type_url: &str) {
        self.stale.get_or_create(&label(type_url)).inc();
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
