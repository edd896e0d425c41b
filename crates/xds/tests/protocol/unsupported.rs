//! Tests that a setting without effect is logged, because the operator would otherwise take it to
//! be in force.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crowfly_model::grpc::Cluster;
use crowfly_testkit::builders::cluster;
use crowfly_testkit::{Script, response};
use crowfly_xds::Protocol;
use envoy_types::pb::envoy::config::cluster::v3::OutlierDetection;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use tracing_subscriber::fmt;

/// gRFC A50: a wish that is not fulfilled is a WARN when it comes and when it changes, and not
/// when something else does.
#[test]
fn a_wish_is_told_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let mut script = Script::watching::<Cluster>(Protocol::StateOfTheWorld, &["a"]);
        let mut receive = |version: &str, resource: Any| {
            script.receive(response::<Cluster>(version, version, [resource]));
            log.take_warnings()
        };
        assert_eq!(receive("v1", plain()), Vec::<String>::new());
        let told = receive("v2", ejecting("a"));
        assert_eq!(told.len(), 1, "{told:?}");
        for part in [
            "the cluster asks for what is not done",
            "outlier_detection.consecutive_5xx",
            "name=\"a\"",
        ] {
            assert!(told[0].contains(part), "expected {part:?} in {told:?}");
        }
        // Neither the same again nor another change tells it again.
        assert_eq!(receive("v3", ejecting("a")), Vec::<String>::new());
        assert_eq!(receive("v4", ejecting("other")), Vec::<String>::new());
        // Gone and back, it is news.
        assert_eq!(receive("v5", plain()), Vec::<String>::new());
        assert_eq!(receive("v6", ejecting("a")).len(), 1);
    });
}

fn plain() -> Any {
    cluster("a").any()
}

fn ejecting(eds: &str) -> Any {
    let ejecting = cluster("a").eds(eds);
    let ejecting = ejecting.edit(|proto| {
        proto.outlier_detection = Some(OutlierDetection {
            consecutive_5xx: Some(UInt32Value { value: 5 }),
            ..OutlierDetection::default()
        });
    });
    ejecting.any()
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take_warnings(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().filter(|line| line.contains("WARN"));
        lines.map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
