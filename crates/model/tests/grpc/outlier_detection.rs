//! Tests of the outlier detection of clusters (gRFC A50): a message that is present and empty turns
//! it on, so its defaults matter.

use std::time::Duration;

use crowfly_model::grpc::{
    Cluster,
    cluster::{ClusterKind, FailurePercentage, OutlierDetection, SuccessRate},
};
use envoy_types::pb::{
    envoy::config::cluster::v3 as pb,
    google::protobuf::{self, UInt32Value},
};

use crate::{
    Case, accept, check_rejections,
    messages::{aggregate, cluster},
};

/// S3-09: present and empty, success rate is on at 100 and failure percentage is off, with the
/// defaults of gRFC A50.
#[test]
fn an_empty_message_means_success_rate_at_100() {
    assert_eq!(read(|_| {}), Some(defaults()));
}

/// S3-09: an enforcement of 0 turns a rule off; with both off, nothing is detected.
#[test]
fn an_enforcement_of_zero_is_off() {
    let off = read(|proto| proto.enforcing_success_rate = number(0));
    assert_eq!(off, None);
    let both = read(|proto| {
        proto.enforcing_success_rate = number(0);
        proto.enforcing_failure_percentage = number(0);
    });
    assert_eq!(both, None);
    let other = read(|proto| {
        proto.enforcing_success_rate = number(0);
        proto.enforcing_failure_percentage = number(40);
    });
    let expected = OutlierDetection {
        success_rate: None,
        failure_percentage: Some(FailurePercentage {
            threshold: 85,
            enforcement_percentage: 40,
            minimum_hosts: 5,
            request_volume: 50,
        }),
        ..defaults()
    };
    assert_eq!(other, Some(expected));
    // Without the message there is nothing either.
    assert_eq!(detection(&cluster()), None);
}

/// gRFC A50: each field of the message is read into its own setting.
#[test]
fn every_setting_is_read() {
    let expected = OutlierDetection {
        interval: Duration::new(1, 5),
        base_ejection_time: Duration::from_secs(2),
        max_ejection_time: Duration::from_secs(3),
        max_ejection_percent: 4,
        success_rate: Some(SuccessRate {
            stdev_factor: 5,
            enforcement_percentage: 6,
            minimum_hosts: 7,
            request_volume: 8,
        }),
        failure_percentage: Some(FailurePercentage {
            threshold: 9,
            enforcement_percentage: 10,
            minimum_hosts: 11,
            request_volume: 12,
        }),
    };
    assert_eq!(read(fill), Some(expected));
}

/// gRFC A50: the longest ejection is `max_ejection_time` or `base_ejection_time`, whichever is longer, also
/// if the former is not given.
#[test]
fn the_longest_ejection_is_not_shorter_than_the_first() {
    for (base, max, expected) in [
        (None, Some(3), 30),
        (Some(400), None, 400),
        (None, None, 300),
    ] {
        let read = read(|proto| {
            proto.base_ejection_time = base.map(seconds);
            proto.max_ejection_time = max.map(seconds);
        });
        let max = read.map(|read| read.max_ejection_time.as_secs());
        assert_eq!(max, Some(expected));
    }
}

/// An interval of 0 is valid by gRFC A50, and would leave time for nothing else.
#[test]
fn an_interval_is_not_shorter_than_10_ms() {
    let read = read(|proto| proto.interval = Some(protobuf::Duration::default()));
    let interval = read.map(|read| read.interval);
    assert_eq!(interval, Some(Duration::from_millis(10)));
}

/// gRFC A50: the other fields of a rule that is off are ignored, so none of them is wrong.
#[test]
fn settings_of_a_rule_that_is_off_are_not_looked_at() {
    let read = read(|proto| proto.failure_percentage_threshold = number(101));
    assert_eq!(read, Some(defaults()));
}

/// S3-09, gRFC A50: percentages over 100 and durations out of range are a NACK with their path, also in
/// an aggregate.
#[test]
fn settings_that_are_nacked() {
    let cases: &[Case<pb::Cluster>] = &[
        (
            "percentages",
            |p| {
                set(p, |proto| {
                    fill(proto);
                    proto.max_ejection_percent = number(101);
                    proto.enforcing_success_rate = number(102);
                    proto.enforcing_failure_percentage = number(100);
                    proto.failure_percentage_threshold = number(104);
                });
            },
            &[
                "outlier_detection.max_ejection_percent: expected at most 100, got 101",
                "outlier_detection.enforcing_success_rate: expected at most 100, got 102",
                "outlier_detection.failure_percentage_threshold: expected at most 100, got 104",
            ],
        ),
        (
            "enforcement",
            |p| set(p, |proto| proto.enforcing_failure_percentage = number(101)),
            &["outlier_detection.enforcing_failure_percentage: expected at most 100, got 101"],
        ),
        (
            "durations, though both rules are off",
            |p| {
                set(p, |proto| {
                    proto.enforcing_success_rate = number(0);
                    proto.interval = Some(seconds(-1));
                    proto.base_ejection_time = Some(seconds(315_576_000_001));
                    proto.max_ejection_time = Some(protobuf::Duration {
                        seconds: 1,
                        nanos: 1_000_000_000,
                    });
                });
            },
            &[
                "outlier_detection.interval.seconds: expected 0 to 315576000000, got -1",
                "outlier_detection.base_ejection_time.seconds: \
                 expected 0 to 315576000000, got 315576000001",
                "outlier_detection.max_ejection_time.nanos: \
                 expected 0 to 999999999, got 1000000000",
            ],
        ),
    ];
    check_rejections::<Cluster, _>(cluster, cases);
    check_rejections::<Cluster, _>(aggregate, cases);
}

fn defaults() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 10,
        success_rate: Some(SuccessRate {
            stdev_factor: 1900,
            enforcement_percentage: 100,
            minimum_hosts: 5,
            request_volume: 100,
        }),
        failure_percentage: None,
    }
}

/// Gives each setting a value that no other has.
fn fill(proto: &mut pb::OutlierDetection) {
    *proto = pb::OutlierDetection {
        interval: Some(protobuf::Duration {
            seconds: 1,
            nanos: 5,
        }),
        base_ejection_time: Some(seconds(2)),
        max_ejection_time: Some(seconds(3)),
        max_ejection_percent: number(4),
        success_rate_stdev_factor: number(5),
        enforcing_success_rate: number(6),
        success_rate_minimum_hosts: number(7),
        success_rate_request_volume: number(8),
        failure_percentage_threshold: number(9),
        enforcing_failure_percentage: number(10),
        failure_percentage_minimum_hosts: number(11),
        failure_percentage_request_volume: number(12),
        ..pb::OutlierDetection::default()
    };
}

fn read(edit: impl FnOnce(&mut pb::OutlierDetection)) -> Option<OutlierDetection> {
    let mut proto = cluster();
    set(&mut proto, edit);
    detection(&proto)
}

fn set(cluster: &mut pb::Cluster, edit: impl FnOnce(&mut pb::OutlierDetection)) {
    edit(cluster.outlier_detection.get_or_insert_default());
}

fn detection(proto: &pb::Cluster) -> Option<OutlierDetection> {
    match accept::<Cluster>(proto).kind {
        ClusterKind::Leaf(leaf) => leaf.outlier_detection.map(|settings| *settings),
        ClusterKind::Aggregate(aggregate) => panic!("expected a leaf, got {aggregate:?}"),
    }
}

fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

fn seconds(seconds: i64) -> protobuf::Duration {
    protobuf::Duration { seconds, nanos: 0 }
}
