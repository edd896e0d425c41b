//! Our channel reports its load to an LRS server that shares no code with us.
//!
//! A server of ours could misread a figure as the channel does, and both would still agree.

use std::time::Duration;

use crowfly_e2e::ads_server::AdsServer;
use crowfly_e2e::{peers, resources, rpc};
use serde_json::{Value, json};

use crate::foreign_control_plane::{loopback, serving};
use crate::{CROWFLY, channel};

/// S13-01, S13-02, S13-08: a foreign server reads in our reports all calls that were made, to the
/// last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_server_reads_the_load_that_was_sent() {
    let Some(python) = peers::python() else {
        return;
    };
    let b1 = CROWFLY.backend("b1");
    let ads = AdsServer::start_with_load_reports(python, Duration::from_secs(1));
    let mut ads = serving(ads, &[&b1]);
    let mut cluster = resources::cluster("svc");
    cluster["lrs_server"] = json!({ "self": {}, "resource_api_version": "V3" });
    let mut endpoints = resources::endpoints("svc", &[b1.address]);
    ads.set("2", &[cluster]);
    let channel = channel(loopback(ads.port()));
    rpc::until_served_by(&channel, &["b1"]).await;
    let node = ads.wait_for_load_stream();
    assert_eq!(node["id"], "e2e");
    let features = node["client_features"].as_array().expect("features");
    let feature = json!("envoy.lrs.supports_send_all_clusters");
    assert!(features.contains(&feature), "{node}");

    let mut sums = Sums::default();
    // The number of the first calls is unknown. A report without load tells that they are over.
    loop {
        let before = sums;
        sums.add(&ads.wait_for_load_report());
        if sums == before && sums.issued > 0 {
            break;
        }
    }
    let mut expected = sums;
    rpc::spread(&channel, 100).await;
    expected.issued += 100;
    expected.succeeded += 100;
    while sums.succeeded < expected.succeeded {
        sums.add(&ads.wait_for_load_report());
    }
    assert_eq!(sums, expected);

    endpoints["policy"] = json!({ "drop_overloads": [{
        "category": "all",
        "drop_percentage": { "numerator": 100, "denominator": "HUNDRED" },
    }] });
    ads.set("2", &[endpoints]);
    let mut dropped = 0;
    while dropped < 7 {
        match rpc::unary_call(&channel).await {
            Ok(_) => {
                expected.issued += 1;
                expected.succeeded += 1;
            }
            Err(status) => {
                assert!(status.message().contains("category all"), "{status}");
                dropped += 1;
            }
        }
    }
    expected.dropped += dropped;
    // The last report comes with the end of the channel.
    drop(channel);
    while sums.dropped < expected.dropped {
        sums.add(&ads.wait_for_load_report());
    }
    assert_eq!(sums, expected);
    ads.wait_for_end_of_load_reports();
}

/// The sums of the cluster `svc` in its only locality.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    issued: u64,
    succeeded: u64,
    errors: u64,
    dropped: u64,
}

impl Sums {
    fn add(&mut self, report: &[Value]) {
        // Proto JSON has numbers of 64 bits as text, and leaves zeros out.
        let number = |value: &Value| match value {
            Value::Null => 0,
            value => value.as_str().expect("a number").parse().expect("a number"),
        };
        for stats in report {
            assert_eq!(stats["cluster_name"], "svc");
            assert_eq!(stats["cluster_service_name"], Value::Null, "{stats}");
            let interval = stats["load_report_interval"].as_str().expect("an interval");
            assert!(interval.ends_with('s') && interval != "0s", "{stats}");
            self.dropped += number(&stats["total_dropped_requests"]);
            for drop in stats["dropped_requests"].as_array().into_iter().flatten() {
                assert_eq!(drop["category"], "all");
            }
            for locality in stats["upstream_locality_stats"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let place = json!({ "region": "r1", "zone": "z1" });
                assert_eq!(locality["locality"], place);
                self.issued += number(&locality["total_issued_requests"]);
                self.succeeded += number(&locality["total_successful_requests"]);
                self.errors += number(&locality["total_error_requests"]);
            }
        }
    }
}
