//! Clusters that name a balancing policy of a program's own (gRFC A52).

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::sync::Arc;

use crowfly_model::grpc::Cluster;
use crowfly_model::grpc::cluster::{
    ClusterKind, CustomPolicies, EndpointPolicy, LbPolicy, LeafCluster,
};
use crowfly_model::{Features, ResourceType};
use serde_json::json;

/// A `TypedStruct` of either package is read as the JSON it holds, and its bytes do not depend on
/// chance.
#[test]
fn a_cluster_names_a_policy_of_a_program() {
    for package in ["udpa.type.v1", "xds.type.v3"] {
        let text = resource(package);
        let snapshot = support::snapshot(&text);
        let served = snapshot.resource(Cluster::TYPE_URL, "c").unwrap();
        for _ in 0..20 {
            let again = support::snapshot(&text);
            assert_eq!(again.resource(Cluster::TYPE_URL, "c"), Some(served));
        }
        let everything = CustomPolicies::NONE.with_all_others(Arc::new(|_| Ok(Arc::new(()))));
        let features = Features {
            custom_policies: everything,
            ..Features::default()
        };
        let cluster = Cluster::parse(&served.any.value, &features).value.unwrap();
        let ClusterKind::Leaf(LeafCluster { lb_policy, .. }) = cluster.kind else {
            panic!("expected a leaf, got {cluster:?}");
        };
        let LbPolicy::Endpoints(EndpointPolicy::Custom(policy)) = lb_policy else {
            panic!("expected a policy of a program, got {lb_policy:?}");
        };
        assert_eq!(policy.name, "my.Policy");
        let config = json!({ "a": 1, "b": [true, "x"], "c": {}, "d": 0, "e": null, "f": -0.5 });
        assert_eq!(policy.config, config);
    }
}

fn resource(package: &str) -> String {
    format!(
        r#"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: c
  type: EDS
  eds_cluster_config: {{ eds_config: {{ ads: {{}} }} }}
  load_balancing_policy:
    policies:
    - typed_extension_config:
        name: ours
        typed_config:
          "@type": type.googleapis.com/{package}.TypedStruct
          type_url: type.googleapis.com/my.Policy
          value: {{ a: 1, b: [true, x], c: {{}}, d: 0, e: null, f: -0.5 }}
"#
    )
}
