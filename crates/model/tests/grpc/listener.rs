//! Tests of listeners: their routes, their filters and the paths of their errors. A client uses API
//! listeners only, but others are valid.

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Listener,
        listener::{ListenerKind, RouteSource},
    },
};
use envoy_types::pb::{
    envoy::{
        config::{core::v3::TypedExtensionConfig, listener::v3 as pb},
        extensions::filters::network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, Rds, ScopedRoutes,
            http_connection_manager::RouteSpecifier, http_filter::ConfigType,
        },
    },
    google::protobuf::Any,
};
use prost::Message;

use crate::{
    Case, accept, check_rejections,
    messages::{
        address, any, file_source, filter, listener, manager, route_config, self_source,
        typed_struct,
    },
    reject, route_for,
};

const UNKNOWN: &str = "envoy.extensions.filters.http.fancy.v3.Fancy";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

fn unknown_filter(name: &str) -> HttpFilter {
    let config = Any {
        type_url: format!("type.googleapis.com/{UNKNOWN}"),
        value: vec![],
    };
    filter(name, config)
}

fn optional(mut filter: HttpFilter) -> HttpFilter {
    filter.is_optional = true;
    filter
}

#[test]
fn routes_by_rds() {
    let parsed = accept::<Listener>(&listener(&manager()));
    let ListenerKind::Api(api) = parsed.kind else {
        panic!("expected an API listener");
    };
    assert_eq!(parsed.name, "payments");
    assert_eq!(api.routes, RouteSource::Rds("payments-routes".to_owned()));
}

#[test]
fn rds_from_self_is_as_good_as_from_ads() {
    let mut manager = manager();
    let Some(RouteSpecifier::Rds(rds)) = &mut manager.route_specifier else {
        panic!("expected rds");
    };
    rds.config_source = Some(self_source());
    accept::<Listener>(&listener(&manager));
}

#[test]
fn routes_inline_need_no_name() {
    let mut manager = manager();
    let mut config = route_config();
    config.name.clear();
    manager.route_specifier = Some(RouteSpecifier::RouteConfig(config));
    let ListenerKind::Api(api) = accept::<Listener>(&listener(&manager)).kind else {
        panic!("expected an API listener");
    };
    let RouteSource::Inline(config) = api.routes else {
        panic!("expected inline routes");
    };
    let host = config.virtual_host("payments").unwrap();
    let route = route_for(host, "/pay.Pay/Pay").unwrap();
    assert_eq!(route.action.clusters().collect::<Vec<_>>(), ["payments"]);
}

/// Routes without a name of their own are named by their listener, since errors have to name
/// something.
#[test]
fn nameless_inline_routes_have_the_name_of_their_listener() {
    for (name, expected) in [("", "payments"), ("routes", "routes")] {
        let mut manager = manager();
        let mut config = route_config();
        config.name = name.to_owned();
        manager.route_specifier = Some(RouteSpecifier::RouteConfig(config));
        let ListenerKind::Api(api) = accept::<Listener>(&listener(&manager)).kind else {
            panic!("expected an API listener");
        };
        let RouteSource::Inline(config) = api.routes else {
            panic!("expected inline routes");
        };
        assert_eq!(config.name, expected);
    }
}

#[test]
fn errors_of_inline_routes_have_the_whole_path() {
    let mut manager = manager();
    let mut config = route_config();
    config.virtual_hosts[0].domains[0] = "a*b".to_owned();
    manager.route_specifier = Some(RouteSpecifier::RouteConfig(config));
    assert_eq!(
        reject::<Listener>(&listener(&manager)),
        [
            "api_listener.api_listener.route_config.virtual_hosts[0].domains[0]: \
             expected `*` only first or last, got \"a*b\""
        ]
    );
}

/// S3-01 (part): a socket listener is valid; a client that is given one says so later.
#[test]
fn socket_listener_is_not_nacked() {
    let proto = pb::Listener {
        name: "server".to_owned(),
        address: Some(address("0.0.0.0", 80)),
        ..pb::Listener::default()
    };
    assert_eq!(accept::<Listener>(&proto).kind, ListenerKind::Socket);
}

/// S3-01 (part): neither `api_listener` nor `address`, or no HTTP connection manager.
#[test]
fn listener_without_a_use_is_nacked() {
    let cases: &[Case<pb::Listener>] = &[
        (
            "neither",
            |p| p.api_listener = None,
            &["expected api_listener or address, got neither"],
        ),
        (
            "neither, nor a name",
            |p| *p = pb::Listener::default(),
            &[
                "name: expected a non-empty string, got none",
                "expected api_listener or address, got neither",
            ],
        ),
        (
            "empty api_listener",
            |p| p.api_listener = Some(pb::ApiListener::default()),
            &["api_listener.api_listener: expected an HttpConnectionManager, got none"],
        ),
        (
            "other type",
            |p| p.api_listener.as_mut().unwrap().api_listener = Some(any(&route_config())),
            &["api_listener.api_listener: expected \
               envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, \
               got envoy.config.route.v3.RouteConfiguration"],
        ),
        (
            "no type",
            |p| p.api_listener.as_mut().unwrap().api_listener = Some(Any::default()),
            &["api_listener.api_listener.type_url: \
               expected a type_url such as type.googleapis.com/NAME, got \"\""],
        ),
    ];
    check_rejections::<Listener, _>(|| listener(&manager()), cases);
}

/// S3-01: a wrong RDS source, and a source of routes that is missing or not supported; each is NACKed with its path.
#[test]
fn bad_route_sources() {
    check_managers(&[
        (
            "rds source",
            |m| rds(m).config_source = Some(file_source()),
            &["rds.config_source: expected ads or self, got path_config_source"],
        ),
        (
            "no rds source, no name",
            |m| *rds(m) = Default::default(),
            &[
                "rds.config_source: expected ads or self, got none",
                "rds.route_config_name: expected a non-empty string, got none",
            ],
        ),
        (
            "scoped routes",
            |m| m.route_specifier = Some(RouteSpecifier::ScopedRoutes(ScopedRoutes::default())),
            &["expected rds or route_config, got scoped_routes"],
        ),
        (
            "no routes",
            |m| m.route_specifier = None,
            &["expected rds or route_config, got neither"],
        ),
    ]);
}

/// S3-01: no router, router not last, names that are missing or double; each is NACKed with its path.
#[test]
fn bad_http_filters() {
    check_managers(&[
        (
            "no filters",
            |m| m.http_filters.clear(),
            &["http_filters: expected at least one filter, got none"],
        ),
        (
            "no router",
            |m| m.http_filters = vec![optional(unknown_filter("x"))],
            &["http_filters: expected a router as the last filter, got none"],
        ),
        (
            "router not last",
            |m| m.http_filters.push(unknown_filter("x")),
            &[
                "http_filters[1].typed_config: expected a supported filter, \
                 got envoy.extensions.filters.http.fancy.v3.Fancy",
                "http_filters[0]: expected the router last in the chain, got it here",
            ],
        ),
        (
            "two routers of one name",
            |m| m.http_filters.push(m.http_filters[0].clone()),
            &[
                "http_filters[1].name: expected a unique name, got \"router\" again",
                "http_filters[0]: expected the router last in the chain, got it here",
            ],
        ),
        (
            "no name",
            |m| m.http_filters[0].name.clear(),
            &["http_filters[0].name: expected a non-empty string, got none"],
        ),
    ]);
}

/// S3-01, gRFC A41: a listener that takes the address of the client from headers is NACKed, with both paths.
#[test]
fn client_address_from_headers() {
    check_managers(&[(
        "client address from headers",
        |m| {
            m.xff_num_trusted_hops = 2;
            m.original_ip_detection_extensions = vec![TypedExtensionConfig::default()];
        },
        &[
            "xff_num_trusted_hops: expected 0, got 2",
            "original_ip_detection_extensions: expected none, got 1",
        ],
    )]);
}

fn check_managers(cases: &[Case<HttpConnectionManager>]) {
    for (what, spoil, expected) in cases {
        let mut manager = manager();
        spoil(&mut manager);
        let expected: Vec<_> = expected.iter().map(|error| in_manager(error)).collect();
        assert_eq!(reject::<Listener>(&listener(&manager)), expected, "{what}");
    }
}

/// S3-02: an unknown filter is skipped if it is optional, and NACKed if not.
#[test]
fn unknown_filters() {
    let optional_ones = [
        optional(unknown_filter("x")),
        optional(filter(
            "x",
            typed_struct("xds.type.v3.TypedStruct", UNKNOWN, &[]),
        )),
        optional(HttpFilter {
            name: "x".to_owned(),
            ..HttpFilter::default()
        }),
    ];
    for unknown in optional_ones {
        let mut manager = manager();
        manager.http_filters.insert(0, unknown.clone());
        accept::<Listener>(&listener(&manager));
        // It has no place in the chain, so it may as well follow the router.
        manager.http_filters.swap(0, 1);
        accept::<Listener>(&listener(&manager));
    }

    let mut manager = manager();
    manager.http_filters.insert(0, unknown_filter("x"));
    let no_config = HttpFilter {
        name: "y".to_owned(),
        ..HttpFilter::default()
    };
    manager.http_filters.insert(1, no_config);
    assert_eq!(
        reject::<Listener>(&listener(&manager)),
        [
            in_manager(
                "http_filters[0].typed_config: expected a supported filter, \
                 got envoy.extensions.filters.http.fancy.v3.Fancy"
            ),
            in_manager("http_filters[1]: expected typed_config, got none"),
        ]
    );
}

/// A `TypedStruct` of either package is unwrapped before the filter is looked up (gRFC A39).
#[test]
fn typed_structs_are_unwrapped() {
    for wrapper in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
        let mut manager = manager();
        // Found, and refused: its configuration is a message, optional or not.
        manager.http_filters[0].config_type =
            Some(ConfigType::TypedConfig(typed_struct(wrapper, ROUTER, &[])));
        for optional in [false, true] {
            manager.http_filters[0].is_optional = optional;
            let router = "envoy.extensions.filters.http.router.v3.Router";
            assert_eq!(
                reject::<Listener>(&listener(&manager)),
                [in_manager(&format!(
                    "http_filters[0].typed_config: expected {router}, got it as a TypedStruct"
                ))]
            );
        }
        manager.http_filters[0].is_optional = false;

        manager.http_filters[0].config_type =
            Some(ConfigType::TypedConfig(typed_struct(wrapper, UNKNOWN, &[])));
        let errors = reject::<Listener>(&listener(&manager));
        assert!(errors[0].ends_with("got envoy.extensions.filters.http.fancy.v3.Fancy"));
    }
}

#[test]
fn name_is_known_even_if_the_rest_is_wrong() {
    let proto = pb::Listener {
        name: "broken".to_owned(),
        ..pb::Listener::default()
    };
    let decoded = Listener::parse(&proto.encode_to_vec(), &Features::ALL);
    assert_eq!(decoded.name.as_deref(), Some("broken"));
    assert!(decoded.value.is_err());

    let undecodable = Listener::parse(&[0xff], &Features::ALL);
    assert_eq!(undecodable.name, None);
    let errors = undecodable.value.unwrap_err().to_string();
    assert!(errors.starts_with("cannot be decoded: "), "{errors}");
}

fn rds(manager: &mut HttpConnectionManager) -> &mut Rds {
    match &mut manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => rds,
        other => panic!("expected rds, got {other:?}"),
    }
}

/// The error as it reads at the connection manager; one without a path of its own is at the manager.
fn in_manager(error: &str) -> String {
    let separator = if error.starts_with("expected") {
        ": "
    } else {
        "."
    };
    format!("api_listener.api_listener{separator}{error}")
}
