//! The stateful session filter in a chain and in an override (gRFC A55).
//!
//! The two are different messages, so a rule for one can be missing for the other.

use crowfly_testkit::builders::sessions;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
};
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let filter = |what, config: Any, ours, c_core| {
        let resource = listener("svc").rds("svc").filter("sessions", config);
        case(what, LISTENER, resource.any(), ours, c_core)
    };
    let both = |what, reading, config| filter(what, config, reading, reading);
    let overriding = |what, reading, config| {
        let resource = all_to("svc").host_override("sessions", config);
        case(what, ROUTES, resource.any(), reading, reading)
    };
    let off = |to| StatefulSessionPerRoute {
        r#override: Some(Override::Disabled(to)),
    };
    vec![
        both("a cookie", Taken, sessions("s").path("/a").ttl(60).any()),
        both(
            "no session state",
            Taken,
            pack_any(StatefulSession::default()),
        ),
        // gRFC A55: the state must be a cookie, with a name and a time to live that is not negative.
        both("no state in the session state", Refused, of(None)),
        both(
            "a session state by a header",
            Refused,
            of(Some(pack_any(HeaderBasedSessionState {
                name: "s".to_owned(),
            }))),
        ),
        both(
            "a session state without a cookie",
            Refused,
            of(Some(pack_any(CookieBasedSessionState::default()))),
        ),
        both("a cookie without a name", Refused, sessions("").any()),
        both("a negative ttl", Refused, sessions("s").ttl(-1).any()),
        // RFC 6265: the name is a token. C-core takes others, and never finds their cookies again.
        filter("a name with =", sessions("a=b").any(), Refused, Taken),
        // RFC 6265: a path ends at a semicolon. C-core sets another cookie than it was told to.
        filter(
            "a path with ;",
            sessions("s").path("/a;b").any(),
            Refused,
            Taken,
        ),
        overriding("an override", Taken, sessions("s").as_override()),
        overriding(
            "an override of no name",
            Refused,
            sessions("").as_override(),
        ),
        overriding("an override that turns off", Taken, pack_any(off(true))),
        overriding("an override that says false", Taken, pack_any(off(false))),
        overriding(
            "an override that says nothing",
            Taken,
            pack_any(StatefulSessionPerRoute::default()),
        ),
        // gRFC A39: the filter of a chain is not an override.
        overriding("a filter as an override", Refused, sessions("s").any()),
    ]
}

fn of(state: Option<Any>) -> Any {
    pack_any(StatefulSession {
        session_state: Some(TypedExtensionConfig {
            name: "state".to_owned(),
            typed_config: state,
        }),
        ..StatefulSession::default()
    })
}
