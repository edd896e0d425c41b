//! A thousand sessions on each client, while endpoints move between priorities, drain and die (gRFC A55, A75).
//!
//! Sessions begin where each client's policy puts them, so single sessions cannot be compared. Both
//! clients must keep the sessions of the same endpoints, and move the others to the same endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crowfly_e2e::comparison::{Backends, Both, Call, Outcome, Rig};
use crowfly_e2e::peers;
use crowfly_e2e::process::PATIENCE;
use crowfly_e2e::resources::{self, ENDPOINTS};
use serde_json::{Value, json};
use tonic::Code;

use crate::CROWFLY;

const SESSIONS: usize = 1000;
const BACKENDS: [&str; 9] = ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"];
const TARGET: &str = "xds:///sessions";

/// The number of calls without a cookie that show where new sessions begin.
const FRESH: usize = 40;

/// A state of the mesh, and what becomes of the sessions in it.
struct Phase {
    what: &'static str,
    /// The endpoints of each priority. Those with `~` drain, and those with `!` are unhealthy.
    priorities: [&'static str; 2],
    /// The backends that are stopped.
    dead: &'static str,
    /// The backends on which new sessions begin.
    fresh: &'static str,
    /// The backends that lose their sessions.
    lose: &'static str,
}

const PHASES: [Phase; 8] = [
    Phase {
        what: "all endpoints are in one priority",
        priorities: ["e0 e1 e2 e3 e4 e5 e6 e7", ""],
        dead: "",
        fresh: "e0 e1 e2 e3 e4 e5 e6 e7",
        lose: "",
    },
    Phase {
        what: "half of them move to the next priority",
        priorities: ["e0 e1 e2 e3", "e4 e5 e6 e7 e8"],
        dead: "",
        fresh: "e0 e1 e2 e3",
        lose: "",
    },
    Phase {
        what: "the halves change places",
        priorities: ["e4 e5 e6 e7", "e0 e1 e2 e3 e8"],
        dead: "",
        fresh: "e4 e5 e6 e7",
        lose: "",
    },
    Phase {
        what: "one of each priority drains",
        priorities: ["~e4 e5 e6 e7", "~e0 e1 e2 e3 e8"],
        dead: "",
        fresh: "e5 e6 e7",
        lose: "",
    },
    Phase {
        what: "one of each becomes unhealthy, and one leaves",
        priorities: ["~e4 !e5 e6 e7", "~e0 !e1 e2 e8"],
        dead: "",
        fresh: "e6 e7",
        lose: "e1 e3 e5",
    },
    Phase {
        what: "one of each dies",
        priorities: ["~e4 e6 e7", "~e0 e2 e8"],
        dead: "e2 e6",
        fresh: "e7",
        lose: "e2 e6",
    },
    Phase {
        what: "the last one of the first priority dies",
        priorities: ["~e4 e6 e7", "~e0 e2 e8"],
        dead: "e2 e6 e7",
        fresh: "e8",
        lose: "e7",
    },
    Phase {
        what: "all are back in one priority",
        priorities: ["e0 e1 e2 e3 e4 e5 e6 e7 e8", ""],
        dead: "",
        fresh: "e0 e1 e2 e3 e4 e5 e6 e7 e8",
        lose: "",
    },
];

fn names(list: &'static str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

/// S12-01, S12-03, S12-04, S12-06, S12-08: a session stays on an endpoint that exists, can be
/// connected and has an allowed health state. It gets no new cookie. All other sessions move once,
/// to where new sessions begin. gRPC C-core does the same.
#[tokio::test(flavor = "multi_thread")]
async fn both_clients_keep_the_same_sessions() {
    let Some(python) = peers::python() else {
        return;
    };
    let backends = Backends::start(&BACKENDS);
    let first = resources_of(&backends, &PHASES[0]);
    let mut rig = Rig::start(CROWFLY, python, backends, first);
    let new = || (0..SESSIONS).map(|_| Session::default()).collect();
    let mut sessions: Both<Vec<Session>> = Both {
        ours: new(),
        c_core: new(),
    };
    for (number, phase) in PHASES.iter().enumerate() {
        if number > 0 {
            enter(&mut rig, phase).await;
        }
        new_sessions_begin_at(&mut rig, phase).await;
        let before = Both {
            ours: hosts(&sessions.ours),
            c_core: hosts(&sessions.c_core),
        };
        let outcomes = call(&mut rig, &sessions).await;
        let fates = Both {
            ours: take_in(&mut sessions.ours, &outcomes.ours),
            c_core: take_in(&mut sessions.c_core, &outcomes.c_core),
        };
        if number > 0 {
            let expected = expected_fates(&before.ours, phase);
            assert_eq!(fates.ours, expected, "ours: {}", phase.what);
            let expected = expected_fates(&before.c_core, phase);
            assert_eq!(fates.c_core, expected, "C-core: {}", phase.what);
        }
        // A second round shows that the sessions have come to rest.
        let outcomes = call(&mut rig, &sessions).await;
        for (client, sessions, outcomes) in [
            ("ours", &mut sessions.ours, &outcomes.ours),
            ("C-core", &mut sessions.c_core, &outcomes.c_core),
        ] {
            let fates = take_in(sessions, outcomes);
            let moved = fates.values().any(|to| to.len() != 1) || set_cookies(outcomes) > 0;
            assert!(!moved, "{client}: {}: {fates:?}", phase.what);
        }
        assert_eq!(
            hosts(&sessions.ours),
            hosts(&sessions.c_core),
            "{}",
            phase.what
        );
    }
}

/// A session of a client: its cookie, and the backend that it is on.
#[derive(Clone, Debug, Default)]
struct Session {
    cookie: Option<String>,
    host: String,
}

/// For each backend that had sessions, the backends that have them now.
type Fates = BTreeMap<String, BTreeSet<String>>;

/// The backends that have sessions.
fn hosts(sessions: &[Session]) -> BTreeSet<String> {
    sessions
        .iter()
        .map(|session| session.host.clone())
        .collect()
}

fn set_cookies(outcomes: &[Outcome]) -> usize {
    outcomes.iter().map(|outcome| outcome.cookies.len()).sum()
}

fn expected_fates(hosts: &BTreeSet<String>, phase: &Phase) -> Fates {
    let fate = |host: &String| {
        let to = match names(phase.lose).contains(host) {
            true => names(phase.fresh),
            false => BTreeSet::from([host.clone()]),
        };
        (host.clone(), to)
    };
    hosts.iter().map(fate).collect()
}

/// Makes one call of each session.
async fn call(rig: &mut Rig, sessions: &Both<Vec<Session>>) -> Both<Vec<Outcome>> {
    let calls = |sessions: &[Session]| -> Vec<Call> {
        let call = |session: &Session| match &session.cookie {
            Some(cookie) => fresh().with("cookie", cookie),
            None => fresh(),
        };
        sessions.iter().map(call).collect()
    };
    let (ours, c_core) = (calls(&sessions.ours), calls(&sessions.c_core));
    let (ours, c_core) = (&ours[..], &c_core[..]);
    rig.call_each(Both { ours, c_core }).await
}

fn fresh() -> Call {
    Call::new(TARGET, "/a.A/M")
}

/// Takes in the outcomes of one call of each session. A session has a new cookie if, and only if, it moved.
fn take_in(sessions: &mut [Session], outcomes: &[Outcome]) -> Fates {
    let mut fates = Fates::new();
    for (session, outcome) in sessions.iter_mut().zip(outcomes) {
        assert_eq!(outcome.code, Code::Ok, "{outcome:?}");
        let stayed = outcome.backend == session.host;
        assert_eq!(
            outcome.cookies.is_empty(),
            stayed,
            "{session:?}: {outcome:?}"
        );
        let to = fates.entry(session.host.clone()).or_default();
        to.insert(outcome.backend.clone());
        if let [set] = &outcome.cookies[..] {
            session.cookie = set.split(';').next().map(str::to_owned);
        }
        session.host.clone_from(&outcome.backend);
    }
    fates
}

/// Makes the backends and the configuration those of a phase.
async fn enter(rig: &mut Rig, phase: &Phase) {
    let dead = names(phase.dead);
    for name in BACKENDS {
        match (dead.contains(name), rig.backends.is_running(name)) {
            (true, true) => rig.backends.stop(name).await,
            (false, false) => rig.backends.restart(name),
            _ => {}
        }
    }
    let resources = resources_of(&rig.backends, phase);
    rig.configure(resources);
}

/// Waits until new sessions of both clients begin on the backends of the phase, all of them and no others.
async fn new_sessions_begin_at(rig: &mut Rig, phase: &Phase) {
    let deadline = Instant::now() + PATIENCE;
    let calls: Vec<Call> = (0..FRESH).map(|_| fresh()).collect();
    let expected = names(phase.fresh);
    loop {
        let outcomes = rig.call(&calls).await;
        let seen = outcomes.map(|outcomes| {
            let all = outcomes.into_iter();
            let all = all.map(|outcome| match outcome.code {
                Code::Ok => outcome.backend,
                _ => outcome.text,
            });
            all.collect::<BTreeSet<String>>()
        });
        if seen.ours == expected && seen.c_core == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{}: {seen:?}", phase.what);
    }
}

fn resources_of(backends: &Backends, phase: &Phase) -> [Value; 4] {
    let mut listener = resources::api_listener("sessions");
    let filters = &mut listener["api_listener"]["api_listener"]["http_filters"];
    let filter = json!({
        "name": "envoy.filters.http.stateful_session",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession",
            "session_state": {
                "name": "envoy.http.stateful_session.cookie",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState",
                    "cookie": { "name": "session" },
                },
            },
        },
    });
    filters.as_array_mut().expect("a list").insert(0, filter);
    let mut cluster = resources::cluster("sessions");
    cluster["common_lb_config"] =
        json!({ "override_host_status": { "statuses": ["UNKNOWN", "HEALTHY", "DRAINING"] } });
    let endpoint = |name: &str| {
        let (name, health) = match name.split_at(1) {
            ("~", name) => (name, "DRAINING"),
            ("!", name) => (name, "UNHEALTHY"),
            _ => (name, "HEALTHY"),
        };
        let at = backends.address(name);
        let at = json!({ "address": at.ip().to_string(), "port_value": at.port() });
        json!({ "endpoint": { "address": { "socket_address": at } }, "health_status": health })
    };
    let localities: Vec<Value> = phase
        .priorities
        .iter()
        .enumerate()
        .filter(|(_, endpoints)| !endpoints.is_empty())
        .map(|(priority, endpoints)| {
            json!({
                "locality": { "region": "r1", "zone": format!("z{priority}") },
                "load_balancing_weight": 1,
                "priority": priority,
                "lb_endpoints": endpoints.split_whitespace().map(endpoint).collect::<Vec<_>>(),
            })
        })
        .collect();
    let endpoints =
        json!({ "@type": ENDPOINTS, "cluster_name": "sessions", "endpoints": localities });
    let routes = resources::routes("sessions", "sessions");
    [listener, routes, cluster, endpoints]
}
