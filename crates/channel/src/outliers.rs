//! What outlier detection did (gRFC A50), for the log.

use crowfly_lb::{OutlierChange, OutlierEvent};
use tracing::{debug, info, warn};

/// Says that an endpoint was ejected, returned, or is an outlier that was not ejected. An ejection is a WARN,
/// because the endpoint needs a look.
pub(crate) fn log(target: &str, event: &OutlierEvent) {
    let OutlierEvent {
        cluster, addresses, ..
    } = event;
    match &event.change {
        OutlierChange::Ejected(ejection) => {
            warn!(target, %cluster, ?addresses, "endpoint {ejection}");
        }
        OutlierChange::Returned => {
            info!(target, %cluster, ?addresses, "ejected endpoint returns");
        }
        OutlierChange::Spared { rule, reason } => {
            let (rule, reason) = (rule.name(), reason.name());
            debug!(target, %cluster, ?addresses, rule, reason, "outlier not ejected");
        }
    }
}
