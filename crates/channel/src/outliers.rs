//! Ejections by outlier detection (gRFC A50), as the log and metrics (gRFC A91) tell them.

use std::sync::Arc;

use crowfly_lb::{OutlierChange, OutlierEvent, OutlierRule, SpareReason};
use tracing::{debug, info, warn};

use crate::metrics::{BalancingRecorder, OutlierLabels};

/// Tells the log and the recorder of a channel about its outliers.
#[derive(Debug)]
pub(crate) struct Outliers {
    /// The target, as the program wrote it.
    target: Arc<str>,
    recorder: Option<Arc<dyn BalancingRecorder>>,
}

impl Outliers {
    pub(crate) fn new(target: &Arc<str>, recorder: Option<Arc<dyn BalancingRecorder>>) -> Self {
        Self {
            target: Arc::clone(target),
            recorder,
        }
    }

    /// Says that an endpoint was ejected, returned, or is an outlier that was not ejected. An ejection is a
    /// WARN, because the endpoint needs a look.
    pub(crate) fn tell(&self, event: &OutlierEvent) {
        let target = &*self.target;
        let OutlierEvent {
            cluster, addresses, ..
        } = event;
        match &event.change {
            OutlierChange::Ejected(ejection) => {
                warn!(target, %cluster, ?addresses, "endpoint {ejection}");
                self.record(event, ejection.cause.rule(), None);
            }
            OutlierChange::Returned => {
                info!(target, %cluster, ?addresses, "ejected endpoint returns");
            }
            OutlierChange::Spared { rule, reason } => {
                let (name, why) = (rule.name(), reason.name());
                debug!(target, %cluster, ?addresses, rule = name, reason = why, "outlier not ejected");
                self.record(event, *rule, Some(*reason));
            }
        }
    }

    fn record(&self, event: &OutlierEvent, rule: OutlierRule, spared: Option<SpareReason>) {
        if let Some(recorder) = &self.recorder {
            let labels = OutlierLabels {
                target: &self.target,
                backend_service: event.cluster.as_str(),
                rule,
            };
            recorder.outlier_detected(&labels, spared);
        }
    }
}
