//! The answers of one client: what it was sent, and whether it accepted it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_xds::{RequestOutcome, Response};
use serde::Serialize;

use super::unix_now;
use crate::metrics::{Metrics, TypeMetrics};

/// The answers of the client of one stream, by type.
#[derive(Debug)]
pub(crate) struct Ledger {
    metrics: Metrics,
    types: BTreeMap<String, TypeLedger>,
}

#[derive(Debug)]
struct TypeLedger {
    metrics: Arc<TypeMetrics>,
    view: TypeView,
}

/// The state of one type on a stream: the version that was sent, and whether the client accepted
/// it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TypeView {
    state: State,
    sent_version: Option<String>,
    acked_version: Option<String>,
    last_nack: Option<NackView>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The client asked for the type, and was sent nothing yet.
    #[default]
    Subscribed,
    Sent,
    Acked,
    Nacked,
}

#[derive(Clone, Debug, Serialize)]
struct NackView {
    version: String,
    message: String,
    at: u64,
}

impl Ledger {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            types: BTreeMap::new(),
        }
    }

    /// Notes that a response was sent.
    pub(crate) fn sent(&mut self, response: &Response) {
        let of = self.of(response.type_url());
        of.metrics.responses.inc();
        of.view.sent_version = Some(response.version().to_owned());
        of.view.state = State::Sent;
    }

    /// Notes the meaning of a request.
    pub(crate) fn received(&mut self, outcome: &RequestOutcome) {
        match outcome {
            RequestOutcome::Subscribed { type_url } => {
                self.of(type_url);
            }
            RequestOutcome::Stale { type_url } => {
                self.of(type_url).metrics.stale.inc();
            }
            RequestOutcome::Ack { type_url, version } => {
                let of = self.of(type_url);
                of.metrics.acks.inc();
                of.view.acked(version);
            }
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                let of = self.of(type_url);
                of.metrics.nacks.inc();
                of.view.nacked(version, message);
            }
        }
    }

    pub(super) fn types(&self) -> BTreeMap<String, TypeView> {
        let types = self.types.iter();
        types
            .map(|(url, of)| (url.clone(), of.view.clone()))
            .collect()
    }

    fn of(&mut self, type_url: &str) -> &mut TypeLedger {
        let metrics = &self.metrics;
        self.types
            .entry(type_url.to_owned())
            .or_insert_with(|| TypeLedger {
                metrics: metrics.of_type(type_url),
                view: TypeView::default(),
            })
    }
}

impl TypeView {
    /// Notes an ACK. After a NACK a client may repeat the version that it holds, which does not
    /// accept the newest.
    fn acked(&mut self, version: &str) {
        self.acked_version = Some(version.to_owned());
        if self.sent_version.as_deref() == Some(version) {
            self.state = State::Acked;
        }
    }

    fn nacked(&mut self, version: &str, message: &str) {
        self.state = State::Nacked;
        self.last_nack = Some(NackView {
            version: version.to_owned(),
            message: message.to_owned(),
            at: unix_now(),
        });
    }
}
