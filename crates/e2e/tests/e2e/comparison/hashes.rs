//! Hash policies and rings: both clients send the same header values to the same backends (gRFC
//! A42).
//!
//! Programs in several languages may call one service, and a value must have one backend for all of
//! them.

use crowfly_e2e::comparison::{Backends, Both, Call, Outcome, Rig};
use crowfly_e2e::peers;
use crowfly_e2e::resources::{self, ROUTES};
use serde_json::{Value, json};
use tonic::Code;

use crate::CROWFLY;

const BACKENDS: [&str; 5] = ["b0", "b1", "b2", "b3", "b4"];
/// The header values for each policy.
const VALUES: usize = 200;

/// The hash policies of a route, by the name of its listener.
fn policies() -> Vec<(&'static str, Value)> {
    let header = |name: &str| json!({ "header": { "header_name": name } });
    let rewritten = json!({ "header": {
        "header_name": "x-user",
        "regex_rewrite": { "pattern": { "regex": "user-([0-9]+)[0-9]" }, "substitution": "\\1!" },
    } });
    let terminal = |name: &str| json!({ "header": { "header_name": name }, "terminal": true });
    vec![
        ("header", json!([header("x-user")])),
        ("two", json!([header("x-user"), header("x-shop")])),
        ("terminal", json!([terminal("x-user"), header("x-shop")])),
        // Of a header that calls do not have, nothing comes, so the next one counts.
        ("absent", json!([terminal("x-absent"), header("x-user")])),
        ("rewritten", json!([rewritten])),
        // Two equal headers.
        ("twice", json!([header("x-user"), header("x-user")])),
        // gRFC A42 has no cookies: the policy is ignored.
        (
            "cookie",
            json!([{ "cookie": { "name": "c" } }, header("x-user")]),
        ),
    ]
}

fn resources((name, policies): &(&str, Value)) -> [Value; 2] {
    let forward = json!({ "cluster": "ring", "hash_policy": policies });
    let route = json!({ "match": { "prefix": "/" }, "route": forward });
    let host = json!({ "name": "all", "domains": ["*"], "routes": [route] });
    let routes = json!({ "@type": ROUTES, "name": name, "virtual_hosts": [host] });
    [resources::api_listener(name), routes]
}

/// S10-08: for 200 values of headers and each way to hash them, both clients choose the same backend of a ring.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_choose_the_same_backends() {
    let Some(python) = peers::python() else {
        return;
    };
    let backends = Backends::start(&BACKENDS);
    let addresses: Vec<_> = backends.addresses.iter().map(|(_, at)| *at).collect();
    let mut ring = resources::cluster("ring");
    ring["lb_policy"] = json!("RING_HASH");
    let policies = policies();
    let routes = policies.iter().flat_map(resources);
    let all = routes.chain([ring, resources::endpoints("ring", &addresses)]);
    let mut rig = Rig::start(CROWFLY, python, backends, all);

    let calls: Vec<Call> = policies.iter().flat_map(|(name, _)| calls(name)).collect();
    let outcomes = rig.call(&calls).await;
    let pairs = outcomes.ours.iter().zip(&outcomes.c_core);
    let wrong: Vec<String> = calls
        .iter()
        .zip(pairs)
        .filter(|(_, (ours, c_core))| ours.backend != c_core.backend || ours.code != Code::Ok)
        .map(|(call, (ours, c_core))| format!("{call:?}: {ours:?} {c_core:?}"))
        .collect();
    let first: Vec<_> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} differ: {first:#?}", wrong.len());
    assert_spread(&outcomes);
}

fn calls(target: &str) -> Vec<Call> {
    let call = |number: usize| {
        Call::new(&format!("xds:///{target}"), "/a.A/M")
            .with("x-user", &format!("user-{number}"))
            .with("x-shop", &format!("shop-{}", number % 7))
    };
    (0..VALUES).map(call).collect()
}

/// Fails unless the calls of each policy reached all backends: a hash that is always the same shows nothing.
fn assert_spread(outcomes: &Both<Vec<Outcome>>) {
    for of_policy in outcomes.ours.chunks(VALUES) {
        for name in BACKENDS {
            assert!(of_policy.iter().any(|one| one.backend == name), "{name}");
        }
    }
}
