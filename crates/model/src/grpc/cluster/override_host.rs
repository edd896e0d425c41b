//! `common_lb_config.override_host_status`: the endpoints that sessions may stick to, by their
//! health (gRFC A55). It is a field of clusters, because a cluster may let draining endpoints keep
//! their sessions.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::{
    cluster::v3::cluster::CommonLbConfig,
    core::v3::{HealthStatus, HealthStatusSet},
};

use crate::{Validator, grpc::endpoints::Health};

/// Reads the health of endpoints that sessions may stick to. A cluster without the field has UNKNOWN and HEALTHY. With
/// an empty set, no session sticks to an endpoint.
///
/// Endpoints of any other health never get calls, so gRFC A55 has such a value ignored. The ignored value is recorded.
pub(super) fn parse(config: Option<&CommonLbConfig>, v: &mut Validator) -> BTreeSet<Health> {
    let set = config.and_then(|config| config.override_host_status.as_ref());
    match set {
        None => BTreeSet::from([Health::Unknown, Health::Healthy]),
        Some(set) => v.field("common_lb_config.override_host_status.statuses", |v| {
            statuses(set, v)
        }),
    }
}

fn statuses(set: &HealthStatusSet, v: &mut Validator) -> BTreeSet<Health> {
    let mut health = BTreeSet::new();
    for (index, status) in set.statuses.iter().enumerate() {
        let ignored = match HealthStatus::try_from(*status) {
            Ok(HealthStatus::Unknown) => {
                health.insert(Health::Unknown);
                continue;
            }
            Ok(HealthStatus::Healthy) => {
                health.insert(Health::Healthy);
                continue;
            }
            Ok(HealthStatus::Draining) => {
                health.insert(Health::Draining);
                continue;
            }
            Ok(other) => other.as_str_name().to_owned(),
            Err(_) => status.to_string(),
        };
        v.index(index, |v| {
            v.unsupported(format!(
                "{ignored} is ignored: no session sticks to such an endpoint (gRFC A55)"
            ));
        });
    }
    health
}
