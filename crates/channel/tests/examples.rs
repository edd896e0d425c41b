//! Runs the examples, because one that nothing runs becomes wrong with the next change.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

#[allow(dead_code, reason = "its main is not that of this test")]
#[path = "../examples/custom_policy/main.rs"]
mod custom_policy;

use std::time::Duration;

use tokio::time::timeout;

/// gRFC A52: calls follow the policy that the cluster names, and its configuration.
#[tokio::test]
async fn a_policy_of_the_programs_own() {
    let mut lines = Vec::new();
    let running = custom_policy::run(|line| lines.push(line));
    let ended = timeout(Duration::from_secs(20), running).await;
    ended.unwrap().unwrap();
    let [one, two, refused, again] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert_eq!(one, r#"size 1: {"a"}"#);
    assert_eq!(two, r#"size 2: {"a", "b"}"#);
    assert!(
        refused.contains("typed_config.value: invalid value: integer `0`"),
        "{refused}"
    );
    assert_eq!(again, two);
}
