//! Retry policies of routes: both clients make the same attempts (gRFC A44, A6).
//!
//! The backends count the attempts, because a client reports only the last one.

use crowfly_e2e::comparison::{Attempt, Call, Script};
use crowfly_e2e::resources::{self, ROUTES};
use serde_json::{Value, json};
use tonic::Code;

use super::rig;

/// All conditions that gRPC knows, and one of a proxy, which counts for nothing.
const ALL: &str = "5xx,cancelled,deadline-exceeded,internal,resource-exhausted,unavailable";

/// A retry policy, by the name of its listener.
fn policies() -> Vec<(&'static str, Value, Value)> {
    let policy = |retry_on: &str, retries: Option<u32>| {
        // Without any delay before the next attempt, C-core 1.85 never makes it.
        let back_off = json!({ "base_interval": "0.02s" });
        let mut policy = json!({ "retry_on": retry_on, "retry_back_off": back_off });
        if let Some(retries) = retries {
            policy["num_retries"] = json!(retries);
        }
        policy
    };
    let null = Value::Null;
    vec![
        // The name, the policy of the virtual host, and that of the route.
        ("none", null.clone(), null.clone()),
        ("two", null.clone(), policy(ALL, Some(2))),
        ("default", null.clone(), policy(ALL, None)),
        ("many", null.clone(), policy(ALL, Some(10))),
        ("only-internal", null.clone(), policy("internal", Some(2))),
        ("no-condition", null.clone(), policy("5xx,reset", Some(2))),
        ("of-host", policy(ALL, Some(2)), null),
        (
            "route-over-host",
            policy(ALL, Some(4)),
            policy("internal", Some(2)),
        ),
    ]
}

fn resources((name, of_host, of_route): &(&str, Value, Value)) -> [Value; 2] {
    let mut route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "c0" } });
    if !of_route.is_null() {
        route["route"]["retry_policy"] = of_route.clone();
    }
    let mut host = json!({ "name": "all", "domains": ["*"], "routes": [route] });
    if !of_host.is_null() {
        host["retry_policy"] = of_host.clone();
    }
    let routes = json!({ "@type": ROUTES, "name": name, "virtual_hosts": [host] });
    [resources::api_listener(name), routes]
}

/// The scripts that each policy is tried with.
fn scripts() -> Vec<Script> {
    // Every code, for ever.
    let mut scripts: Vec<Script> = (1..=16)
        .map(|code| Script::failing(&format!("always {code}"), &[Code::from(code)]))
        .collect();
    let failing = |name: &str, codes: &[Code]| Script::failing(name, codes);
    scripts.push(failing("once", &[Code::Unavailable, Code::Ok]));
    scripts.push(failing(
        "twice",
        &[Code::Unavailable, Code::Internal, Code::Ok],
    ));
    scripts.push(failing("other end", &[Code::Unavailable, Code::NotFound]));
    scripts.push(failing("five", &[Code::Internal; 5]));
    for pushback in ["-1", "20", "soon"] {
        scripts.push(Script {
            pushback: Some(pushback.to_owned()),
            ..failing(
                &format!("pushback {pushback}"),
                &[Code::Internal, Code::Internal, Code::Ok],
            )
        });
    }
    scripts
}

/// S5-07: for each policy and each script of failures, both clients end with the same code after as
/// many attempts. Each attempt says how many came before it.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_make_the_same_attempts() {
    let policies = policies();
    let others = policies.iter().flat_map(resources).collect();
    let Some(mut rig) = rig(&["c0"], others) else {
        return;
    };
    let targets = policies.iter().map(|(name, ..)| *name);
    let calls: Vec<Call> = targets
        .flat_map(|target| {
            scripts().into_iter().map(move |mut script| {
                script.name = format!("{target}: {}", script.name);
                Call::new(&format!("xds:///{target}"), "/a.A/M").scripted(script)
            })
        })
        .collect();
    let outcomes = rig.call(&calls).await;

    let mut wrong = Vec::new();
    let mut retried = 0;
    for (i, call) in calls.iter().enumerate() {
        let name = &call.script.name;
        let codes = [outcomes.ours[i].code, outcomes.c_core[i].code];
        let told = rig.take_attempts(name).map(|attempts| previous(&attempts));
        retried += usize::from(told.c_core.len() > 1);
        if codes[0] != codes[1] || told.ours != told.c_core {
            wrong.push(format!("{name}: {codes:?} {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(retried > 40, "only {retried} calls were retried");
}

/// The number of earlier attempts that each attempt says there were.
fn previous(attempts: &[Attempt]) -> Vec<Option<String>> {
    attempts.iter().map(|one| one.previous.clone()).collect()
}
