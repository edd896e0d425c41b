//! The whole product by itself.

use std::time::Duration;

use crowfly_e2e::process::PATIENCE;
use serde_json::Value;

use crate::CROWFLY;

/// Shorter than the demo of a user; every event still comes to pass in it.
const DURATION: &str = "10s";

/// S7-01, S7-02: backends that stop, die and return, weights that change and a configuration that
/// is refused cost no call but those open on the killed backend.
#[test]
fn the_demo_breaks_things_and_no_call_fails() {
    let mut demo = CROWFLY.start(&["demo", "--duration", DURATION, "--plain", "--json"]);
    let (status, lines) = demo.wait(Duration::from_secs(10) + PATIENCE);
    let last = lines.last().map(String::as_str).unwrap_or_default();
    assert!(status.success(), "{status}: {lines:#?}");
    let report: Value =
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"));
    assert_eq!(report["errors"], serde_json::json!({}), "{lines:#?}");
    let count = |field: &str| {
        report[field]
            .as_u64()
            .unwrap_or_else(|| panic!("{field}: {last}"))
    };
    assert!(count("ok") > 0, "{last}");
    assert_eq!(
        count("ok") + count("lost_in_flight"),
        count("sent"),
        "{last}"
    );
    let backends = report["by_backend"]
        .as_object()
        .map_or(0, |backends| backends.len());
    assert_eq!(backends, 6, "{last}");
}
