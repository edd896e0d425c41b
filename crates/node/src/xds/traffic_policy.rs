//! The rules of a cluster: `load_balancing_policy`, with the struct `cilium_io_traffic_policy`.
//!
//! An unknown value is refused, because it may be meant to keep traffic away from somewhere. An unknown key is
//! ignored, so that later versions can add some.

use std::time::Duration;

use crowfly_model::Validator;
use crowfly_model::grpc::steps;
use envoy_types::pb::envoy::config::cluster::v3 as pb;
use envoy_types::pb::envoy::config::cluster::v3::cluster::LbPolicy;
use envoy_types::pb::google::protobuf::{Any, Struct};

use super::envoy_policy::{self, AT_RANDOM};
use super::metadata;
use crate::model::{Distribution, InternalTraffic};

/// The type inside a `TypedStruct`.
const TRAFFIC_POLICY: &str = "cilium_io_traffic_policy";

/// The rules of choosing among the backends of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficPolicy {
    /// Which backends clients on this node may use.
    pub internal_traffic: InternalTraffic,
    /// Which backends are preferred.
    pub distribution: Option<Distribution>,
    /// The timeout of session affinity.
    pub affinity_timeout: Option<Duration>,
}

impl TrafficPolicy {
    /// The stricter of two values of each rule: `Local`, the closer preference, the shorter timeout.
    pub(super) fn strictest(&self, other: &Self) -> Self {
        let timeouts = [self.affinity_timeout, other.affinity_timeout];
        Self {
            internal_traffic: self.internal_traffic.max(other.internal_traffic),
            distribution: self.distribution.max(other.distribution),
            affinity_timeout: timeouts.into_iter().flatten().min(),
        }
    }
}

/// Reads the policy of a cluster: the first entry of the list that the agent knows.
pub(super) fn parse(proto: &pb::Cluster, v: &mut Validator) -> TrafficPolicy {
    let Some(list) = &proto.load_balancing_policy else {
        if matches!(proto.lb_policy(), LbPolicy::RingHash | LbPolicy::Maglev) {
            v.unsupported_at("lb_policy", AT_RANDOM);
        }
        return TrafficPolicy::default();
    };
    v.field("load_balancing_policy.policies", |v| {
        let mut others = Vec::new();
        for (i, policy) in list.policies.iter().enumerate() {
            let config = policy.typed_extension_config.as_ref();
            let any = config.and_then(|config| config.typed_config.as_ref());
            let read = v.index(i, |v| {
                v.field("typed_extension_config.typed_config", |v| match any {
                    Some(any) => entry(any, v),
                    None => {
                        v.error("expected a policy, got none");
                        Ok(None)
                    }
                })
            });
            match read {
                Ok(policy) => return policy.unwrap_or_default(),
                Err(unknown) => others.push(unknown),
            }
        }
        let got = match others.as_slice() {
            [] => "none".to_owned(),
            others => others.join(", "),
        };
        v.error(format!("expected a supported policy, got {got}"));
        TrafficPolicy::default()
    })
}

/// Reads an entry; `None` after an error, and its name if it is not known.
fn entry(any: &Any, v: &mut Validator) -> Result<Option<TrafficPolicy>, String> {
    match steps::typed_struct(any) {
        Some(Ok((name, fields))) if name == TRAFFIC_POLICY => {
            Ok(Some(v.field("value", |v| traffic_policy(&fields, v))))
        }
        Some(Ok((name, _))) => Err(name),
        Some(Err(message)) => {
            v.error(message);
            Ok(None)
        }
        None => {
            if !envoy_policy::read(any, v) {
                let name = steps::type_name(&any.type_url).unwrap_or(&any.type_url);
                return Err(name.to_owned());
            }
            Ok(Some(TrafficPolicy::default()))
        }
    }
}

/// Keys that are not known are ignored, because later versions may add some. A value that is not known is
/// refused, because it may keep traffic from where it must not go.
fn traffic_policy(fields: &Struct, v: &mut Validator) -> TrafficPolicy {
    let scopes = [
        ("Cluster", InternalTraffic::Cluster),
        ("Local", InternalTraffic::Local),
    ];
    let internal = metadata::choice(fields, "internal_traffic_policy", &scopes, v);
    // It concerns traffic from outside of the cluster, which does not come to a ClusterIP.
    metadata::choice(fields, "external_traffic_policy", &scopes, v);
    let wishes = [
        ("PreferSameZone", Distribution::PreferSameZone),
        ("PreferSameNode", Distribution::PreferSameNode),
    ];
    let algorithms = [("random", true), ("maglev", false)];
    let is_random = metadata::choice(fields, "algorithm", &algorithms, v);
    if is_random == Some(false) {
        v.unsupported_at("algorithm", AT_RANDOM);
    }
    TrafficPolicy {
        internal_traffic: internal.unwrap_or_default(),
        distribution: metadata::choice(fields, "traffic_distribution", &wishes, v),
        affinity_timeout: metadata::affinity_timeout(fields, v),
    }
}
