//! The loads of a control plane, from the page `/loads` and from `crowfly loads`.
//!
//! Both print the same object, so one reading serves the tests of both.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::admin;
use crate::process::PATIENCE;
use crate::product::{Control, Crowfly};

/// The loads of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceLoads {
    /// Issued, succeeded, errors and in progress, by client locality and backend locality.
    pub calls: BTreeMap<(String, String), [u64; 4]>,
    /// All drops.
    pub dropped: u64,
    /// The drops with a category.
    pub categories: BTreeMap<String, u64>,
}

impl ServiceLoads {
    /// The loads of `service` in the object that `/loads` and `crowfly loads --json` print.
    ///
    /// # Panics
    ///
    /// If the object is not as documented.
    pub fn of(loads: &Value, service: &str) -> Self {
        let rows = loads["rows"].as_array().expect("rows");
        let mut found = Self::default();
        for row in rows.iter().filter(|row| row["service"] == service) {
            let count = |name: &str| {
                row[name]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{name}: {row}"))
            };
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            found.dropped += count("dropped");
            if row["backend_locality"].is_null() {
                let categories = row["dropped_by_category"].as_object().expect("categories");
                for (category, dropped) in categories {
                    let sum = found.categories.entry(category.clone()).or_default();
                    *sum += dropped.as_u64().expect("a count");
                }
                continue;
            }
            let key = (text("client_locality"), text("backend_locality"));
            let counts = ["issued", "succeeded", "errors", "in_progress"].map(count);
            let before = found.calls.insert(key, counts);
            assert_eq!(before, None, "one row for each pair of localities: {loads}");
        }
        found
    }

    /// All calls that have ended, and all drops.
    pub fn ended(&self) -> u64 {
        let ended = self.calls.values().map(|[_, ok, errors, _]| ok + errors);
        ended.sum::<u64>() + self.dropped
    }
}

/// The page `/loads`.
///
/// # Panics
///
/// If the control plane does not answer.
pub fn page(admin: SocketAddr) -> Value {
    admin::page(admin, "/loads")
}

/// The loads that `crowfly loads --json` prints.
///
/// # Panics
///
/// If it fails.
pub fn command(crowfly: Crowfly, control: &Control) -> Value {
    let admin = control.admin.to_string();
    let (status, lines) = crowfly
        .start(&["loads", "--admin", &admin, "--json"])
        .wait(PATIENCE);
    assert!(status.success(), "{lines:?}");
    serde_json::from_str(&lines.join("\n")).expect("one object")
}

/// The page `/loads`, once it is as expected.
///
/// # Panics
///
/// If it does not come to that within [`PATIENCE`].
pub fn until(admin: SocketAddr, what: &str, expected: impl Fn(&Value) -> bool) -> Value {
    admin::until(admin, "/loads", what, expected)
}

/// The reports that the open stream of `node` has brought.
pub fn reports(loads: &Value, node: &str) -> Option<u64> {
    let reporters = loads["reporters"].as_array()?;
    let reporter = reporters.iter().find(|reporter| reporter["node"] == node)?;
    reporter["reports"].as_u64()
}
