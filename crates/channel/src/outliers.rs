//! Ejections by outlier detection (gRFC A50), reported to the log and to metrics (gRFC A91), because an operator must
//! look at an endpoint that fails.

use std::sync::Arc;

use crowfly_lb::{OutlierChange, OutlierEvent, OutlierRule, SpareReason};
use tracing::{debug, info, warn};

use crate::metrics::{BalancingRecorder, OutlierLabels};

/// Reports the outliers of a channel to its log and its recorder.
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

    /// Reports that an endpoint was ejected, returned, or is an outlier that was not ejected. An ejection is a WARN,
    /// because an operator should look at the endpoint.
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
