//! Tests of the configuration of the stateful session filter (gRFC A55), in listeners and as an
//! override of routes.

use std::time::Duration;

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Listener, RouteConfig,
        filter::{
            EffectiveConfig, FilterChain, FilterConfig, FilterOverrides, Overrides, SessionCookie,
            SetBy,
        },
        listener::ListenerKind,
    },
};
use envoy_types::pb::{
    envoy::{
        config::{core::v3::TypedExtensionConfig, listener::v3 as pb},
        extensions::{
            filters::http::stateful_session::v3::{
                StatefulSession, StatefulSessionPerRoute, stateful_session_per_route::Override,
            },
            http::stateful_session::{
                cookie::v3::CookieBasedSessionState, envelope::v3::EnvelopeSessionState,
                header::v3::HeaderBasedSessionState,
            },
        },
        r#type::http::v3::{Cookie, CookieAttribute},
    },
    google::protobuf::{self, Any},
};
use prost::Message;

use crate::{
    accept,
    filters::limited,
    messages::{any, filter, listener, manager, route_config},
    reject,
};

const STATE: &str = "session_state.typed_config";
const COOKIES: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";

fn cookie() -> Cookie {
    Cookie {
        name: "session".to_owned(),
        ..Cookie::default()
    }
}

fn state(cookie: Cookie) -> Any {
    let cookie = Some(cookie);
    any(&CookieBasedSessionState { cookie })
}

fn session(state: Any) -> StatefulSession {
    StatefulSession {
        session_state: Some(TypedExtensionConfig {
            name: "envoy.http.stateful_session.cookie".to_owned(),
            typed_config: Some(state),
        }),
        ..StatefulSession::default()
    }
}

fn with(session: &StatefulSession) -> pb::Listener {
    let mut manager = manager();
    let filters = &mut manager.http_filters;
    filters.insert(0, filter("sessions", any(session)));
    listener(&manager)
}

fn chain(session: &StatefulSession) -> FilterChain {
    match accept::<Listener>(&with(session)).kind {
        ListenerKind::Api(api) => api.filters,
        ListenerKind::Socket => panic!("expected an API listener"),
    }
}

/// The filter as the listener has it, and how people see it.
fn config(session: &StatefulSession) -> (Option<SessionCookie>, String) {
    match &chain(session).iter().next().unwrap().config {
        FilterConfig::StatefulSession(cookie) => (
            cookie.as_deref().cloned(),
            FilterConfig::StatefulSession(cookie.clone()).to_string(),
        ),
        other => panic!("expected sessions, got {other}"),
    }
}

/// The errors of a listener with the filter, without the path of the filter.
fn errors(session: &StatefulSession) -> Vec<String> {
    let prefix = "api_listener.api_listener.http_filters[0].typed_config.";
    let errors = reject::<Listener>(&with(session));
    let rest = |error: &String| error.strip_prefix(prefix).map(str::to_owned);
    errors.iter().map(|error| rest(error).unwrap()).collect()
}

/// gRFC A55: the cookie has a name, and may have a path and a time to live.
#[test]
fn cookies_are_read() {
    let whole = Cookie {
        path: "/shop.Cart".to_owned(),
        ttl: Some(protobuf::Duration {
            seconds: 120,
            nanos: 0,
        }),
        ..cookie()
    };
    let expected = SessionCookie {
        name: "session".to_owned(),
        path: "/shop.Cart".to_owned(),
        ttl: Duration::from_secs(120),
    };
    assert_eq!(
        config(&session(state(whole))),
        (
            Some(expected),
            "sessions by cookie session for /shop.Cart, kept for 120s".to_owned()
        )
    );
    let bare = SessionCookie {
        name: "session".to_owned(),
        path: String::new(),
        ttl: Duration::ZERO,
    };
    assert_eq!(
        config(&session(state(cookie()))),
        (Some(bare), "sessions by cookie session".to_owned())
    );
}

/// gRFC A55, and gRPC C-core: without a session state the filter does nothing.
#[test]
fn a_filter_without_a_state_does_nothing() {
    assert_eq!(
        config(&StatefulSession::default()),
        (None, "no sessions".to_owned())
    );
}

/// gRFC A55: a cookie needs a name, and its time to live must be a valid duration. A text that no cookie can carry is an
/// error as well, because no session would be kept.
#[test]
fn bad_cookies_are_refused() {
    let duration = |seconds, nanos| Some(protobuf::Duration { seconds, nanos });
    let name = "expected a name of letters, digits and !#$%&'*+-.^_`|~, got";
    let cases: [(Cookie, &[&str]); 5] = [
        (Cookie::default(), &[&format!("name: {name} \"\"")]),
        (
            Cookie {
                name: "a=b".to_owned(),
                path: "/a;b".to_owned(),
                ..Cookie::default()
            },
            &[
                &format!("name: {name} \"a=b\""),
                "path: expected printable ASCII without a semicolon, got \"/a;b\"",
            ],
        ),
        (
            Cookie {
                path: "/a\n".to_owned(),
                ..cookie()
            },
            &["path: expected printable ASCII without a semicolon, got \"/a\\n\""],
        ),
        (
            Cookie {
                ttl: duration(-1, 0),
                ..cookie()
            },
            &["ttl.seconds: expected 0 to 315576000000, got -1"],
        ),
        (
            Cookie {
                ttl: duration(315_576_000_001, 1_000_000_000),
                ..cookie()
            },
            &[
                "ttl.seconds: expected 0 to 315576000000, got 315576000001",
                "ttl.nanos: expected 0 to 999999999, got 1000000000",
            ],
        ),
    ];
    for (cookie, expected) in cases {
        let expected: Vec<_> = expected
            .iter()
            .map(|error| format!("{STATE}.cookie.{error}"))
            .collect();
        assert_eq!(errors(&session(state(cookie))), expected);
    }
}

/// gRFC A55: sessions are kept by cookies. A state of another type, or one that says nothing, is an error.
#[test]
fn other_states_are_refused() {
    let others = [
        any(&HeaderBasedSessionState {
            name: "x-session".to_owned(),
        }),
        any(&EnvelopeSessionState::default()),
    ];
    for other in others {
        let name = other.type_url.rsplit('/').next().unwrap().to_owned();
        assert_eq!(
            errors(&session(other)),
            [format!("{STATE}: expected {COOKIES}, got {name}")]
        );
    }
    assert_eq!(
        errors(&session(any(&CookieBasedSessionState::default()))),
        [format!("{STATE}.cookie: expected a cookie, got none")]
    );
    let broken = Any {
        value: vec![0xff],
        ..state(cookie())
    };
    let [error] = &errors(&session(broken))[..] else {
        panic!("expected one error");
    };
    assert!(
        error.starts_with(&format!("{STATE}: {COOKIES} cannot be decoded")),
        "{error}"
    );
    let stateless = StatefulSession {
        session_state: Some(TypedExtensionConfig::default()),
        ..StatefulSession::default()
    };
    assert_eq!(
        errors(&stateless),
        [format!("{STATE}: expected a session state, got none")]
    );
}

/// Fields of Envoy that gRPC does not have are ignored, and a tool can tell.
#[test]
fn wishes_in_vain_are_noted() {
    let attributed = Cookie {
        attributes: vec![CookieAttribute::default()],
        ..cookie()
    };
    let strict = StatefulSession {
        strict: true,
        ..session(state(attributed))
    };
    let parsed = Listener::parse(&with(&strict).encode_to_vec(), &Features::ALL);
    let wishes = parsed.value.unwrap().unsupported;
    let wishes: Vec<_> = wishes.iter().map(ToString::to_string).collect();
    let path = "api_listener.api_listener.http_filters[0].typed_config";
    assert_eq!(
        wishes,
        [
            format!(
                "{path}.strict: ignored: a call whose host cannot take it goes to another one \
                 (gRFC A55)"
            ),
            format!(
                "{path}.{STATE}.cookie.attributes: ignored: cookies are set without other \
                 attributes (gRFC A55)"
            ),
        ]
    );
}

fn overriding(config: &StatefulSessionPerRoute) -> FilterOverrides {
    let mut proto = route_config();
    let overrides = &mut proto.virtual_hosts[0].typed_per_filter_config;
    overrides.insert("sessions".to_owned(), any(config));
    let parsed = accept::<RouteConfig>(&proto);
    parsed.virtual_hosts[0].filters.clone()
}

/// The cookie of calls under an override, and the place that set it.
fn in_force(chain: &FilterChain, config: Option<Override>) -> (Option<String>, SetBy) {
    let r#override = StatefulSessionPerRoute { r#override: config };
    let (host, none) = (overriding(&r#override), FilterOverrides::default());
    let overrides = Overrides {
        host: &host,
        route: &none,
        cluster: None,
    };
    let filter = chain.effective(overrides).next().unwrap();
    match filter.config {
        EffectiveConfig::StatefulSession(cookie) => {
            (cookie.map(|cookie| cookie.name.clone()), filter.set_by)
        }
        other => panic!("expected sessions, got {other}"),
    }
}

/// gRFC A55: an override replaces the cookie, or turns the filter off. One that says nothing turns it off as well, as in
/// gRPC C-core.
#[test]
fn overrides_replace_the_cookie_or_turn_it_off() {
    let chain = chain(&session(state(cookie())));
    let other = Cookie {
        name: "other".to_owned(),
        ..Cookie::default()
    };
    let other = session(state(other));
    assert_eq!(
        in_force(&chain, Some(Override::StatefulSession(other))),
        (Some("other".to_owned()), SetBy::VirtualHost)
    );
    let off = [
        Some(Override::Disabled(true)),
        Some(Override::Disabled(false)),
        Some(Override::StatefulSession(StatefulSession::default())),
        None,
    ];
    for off in off {
        assert_eq!(in_force(&chain, off), (None, SetBy::VirtualHost));
    }
}

/// gRFC A39: an override has its errors at its own path. A chain's message is not one of an override.
#[test]
fn bad_overrides_are_refused() {
    let at = "virtual_hosts[0].typed_per_filter_config[sessions]";
    let errors = |config: Any| {
        let mut proto = route_config();
        let overrides = &mut proto.virtual_hosts[0].typed_per_filter_config;
        overrides.insert("sessions".to_owned(), config);
        reject::<RouteConfig>(&proto)
    };
    let nameless = session(state(Cookie::default()));
    let nameless = StatefulSessionPerRoute {
        r#override: Some(Override::StatefulSession(nameless)),
    };
    let [error] = &errors(any(&nameless))[..] else {
        panic!("expected one error");
    };
    let path = format!("{at}.stateful_session.{STATE}.cookie.name: ");
    assert!(error.starts_with(&path), "{error}");
    assert_eq!(
        errors(any(&session(state(cookie())))),
        [format!(
            "{at}: expected the override of a supported filter, got \
             envoy.extensions.filters.http.stateful_session.v3.StatefulSession"
        )]
    );
}

/// An override of another kind of filter is passed over, as in gRPC C-core.
#[test]
fn an_override_of_another_kind_is_passed_over() {
    let chain = chain(&session(state(cookie())));
    let mut proto = route_config();
    let overrides = &mut proto.virtual_hosts[0].typed_per_filter_config;
    overrides.insert("sessions".to_owned(), limited(1));
    let parsed = accept::<RouteConfig>(&proto);
    let none = FilterOverrides::default();
    let overrides = Overrides {
        host: &parsed.virtual_hosts[0].filters,
        route: &none,
        cluster: None,
    };
    let filter = chain.effective(overrides).next().unwrap();
    assert_eq!(filter.set_by, SetBy::Listener);
    assert!(filter.unfit.is_some());
    assert!(matches!(
        filter.config,
        EffectiveConfig::StatefulSession(Some(_))
    ));
}
