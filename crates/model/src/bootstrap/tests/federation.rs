//! Tests of lists of servers and authorities, with the examples of gRFC A47. A name must lead to
//! the servers of its own authority.

use super::{
    super::{AuthorityConfig, Bootstrap, BootstrapBuilder, ServerConfig},
    error,
};
use crate::names::{Authority, authority_of};

/// gRFC A47's example of several authorities, with a fallback server.
const MULTIPLE: &str = r#"{
    "xds_servers": [
        {"server_uri": "xds-server.authority.com:443", "channel_creds": [{"type": "insecure"}]},
        {"server_uri": "fallback.authority.com:443", "channel_creds": [{"type": "insecure"}]}
    ],
    "client_default_listener_resource_name_template":
        "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234",
    "authorities": {
        "xds.authority.com": {
            "client_listener_resource_name_template":
                "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234"
        },
        "xds.other.com": {
            "xds_servers": [
                {"server_uri": "xds-server.other.com:443", "channel_creds": [{"type": "insecure"}]}
            ]
        }
    }
}"#;

fn uris(servers: Option<&[ServerConfig]>) -> Vec<&str> {
    let servers = servers.unwrap().iter();
    servers.map(|server| server.authority()).collect()
}

/// The servers that know a new-style name.
fn servers_of<'a>(bootstrap: &'a Bootstrap, name: &str) -> Option<&'a [ServerConfig]> {
    let Authority::Named(authority) = authority_of(name) else {
        panic!("{name} is an old-style name");
    };
    bootstrap.servers_of(&authority)
}

/// gRFC A71: all servers are kept, in order.
#[test]
fn all_servers_are_kept_in_order() {
    let bootstrap = Bootstrap::from_json(MULTIPLE).unwrap();
    assert_eq!(
        uris(Some(&bootstrap.servers)),
        ["xds-server.authority.com:443", "fallback.authority.com:443"]
    );
}

/// gRFC A47, "Example: Multiple Authorities".
#[test]
fn several_authorities() {
    let bootstrap = Bootstrap::from_json(MULTIPLE).unwrap();
    let name = |authority, service| bootstrap.listener_name(authority, service).unwrap();
    let listener = "envoy.config.listener.v3.Listener";

    let default = name(None, "server.example.com");
    assert_eq!(
        default,
        format!(
            "xdstp://xds.authority.com/{listener}/grpc/client/server.example.com?project_id=1234"
        )
    );
    assert_eq!(
        name(Some("xds.authority.com"), "server.example.com"),
        default
    );
    let other = name(Some("xds.other.com"), "server.other.com");
    assert_eq!(
        other,
        format!("xdstp://xds.other.com/{listener}/server.other.com")
    );

    let top = ["xds-server.authority.com:443", "fallback.authority.com:443"];
    assert_eq!(uris(servers_of(&bootstrap, &default)), top);
    assert_eq!(
        uris(servers_of(&bootstrap, &other)),
        ["xds-server.other.com:443"]
    );
    assert_eq!(bootstrap.servers_of("nobody"), None);
}

/// gRFC A47, "Example: Bootstrap Config Contains No New Fields".
#[test]
fn no_authorities() {
    let bootstrap = Bootstrap::builder("a:1").unwrap().build();
    let name = bootstrap.listener_name(None, "server.example.com?a b");
    assert_eq!(name.unwrap(), "server.example.com?a b");
    assert_eq!(
        bootstrap
            .listener_name(Some("xds.authority.com"), "x")
            .unwrap_err()
            .to_string(),
        "authority \"xds.authority.com\" is not in the xDS bootstrap, which has none"
    );
}

/// An unknown authority is an error, even if it is the authority of the default template.
#[test]
fn unknown_authorities_are_named() {
    let bootstrap = Bootstrap::builder("a:1")
        .unwrap()
        .authority("known", AuthorityConfig::builder())
        .unwrap()
        .listener_template("xdstp://lost/envoy.config.listener.v3.Listener/%s")
        .unwrap()
        .build();
    assert_eq!(
        bootstrap.listener_name(None, "x").unwrap_err().to_string(),
        "authority \"lost\" is not in the xDS bootstrap, which has \"known\""
    );
}

/// The empty authority and one with characters that a URI must encode are looked up like others.
#[test]
fn odd_authorities() {
    let bootstrap = Bootstrap::builder("a:1")
        .unwrap()
        .authority("", AuthorityConfig::builder().server("b:2"))
        .unwrap()
        .authority("a/b", AuthorityConfig::builder().server("c:3"))
        .unwrap()
        .build();
    for (authority, expected, server) in [
        ("", "xdstp:///envoy.config.listener.v3.Listener/x", "b:2"),
        (
            "a/b",
            "xdstp://a%2Fb/envoy.config.listener.v3.Listener/x",
            "c:3",
        ),
    ] {
        let name = bootstrap.listener_name(Some(authority), "x").unwrap();
        assert_eq!(name, expected);
        assert_eq!(uris(servers_of(&bootstrap, &name)), [server]);
    }
}

#[test]
fn builder_is_equal_to_json() {
    let template = "xdstp://xds.authority.com/envoy.config.listener.v3.Listener/grpc/client/%s?project_id=1234";
    let built = Bootstrap::builder("xds-server.authority.com:443")
        .and_then(|builder| builder.server("fallback.authority.com:443"))
        .and_then(|builder| builder.listener_template(template))
        .and_then(|builder| {
            let authority = AuthorityConfig::builder().listener_template(template);
            builder.authority("xds.authority.com", authority)
        })
        .and_then(|builder| {
            let authority = AuthorityConfig::builder().server("xds-server.other.com:443");
            builder.authority("xds.other.com", authority)
        })
        .map(BootstrapBuilder::build);
    assert_eq!(built.unwrap(), Bootstrap::from_json(MULTIPLE).unwrap());
}

fn with(field: &str) -> String {
    format!(
        r#"{{"xds_servers": [
            {{"server_uri": "a:1", "channel_creds": [{{"type": "insecure"}}]}}
        ], {field}}}"#
    )
}

#[test]
fn invalid_authorities() {
    let cases = [
        (
            r#""authorities": []"#,
            "authorities: expected an object, got an array",
        ),
        (
            r#""authorities": {"a": 1}"#,
            "authorities[\"a\"]: expected an object, got a number",
        ),
        (
            r#""authorities": {"a": {"client_listener_resource_name_template": 1}}"#,
            "authorities[\"a\"].client_listener_resource_name_template: \
             expected a string, got a number",
        ),
        (
            r#""authorities": {"a": {"client_listener_resource_name_template": "xdstp://b/t/%s"}}"#,
            "authorities[\"a\"].client_listener_resource_name_template: \
             expected it to begin with xdstp://a/, got \"xdstp://b/t/%s\"",
        ),
        (
            r#""authorities": {"a": {"client_listener_resource_name_template": "xdstp://a/%s"}}"#,
            "authorities[\"a\"].client_listener_resource_name_template: \
             expected xdstp://authority/type/id, got \"xdstp://a/%s\"",
        ),
        (
            r#""authorities": {"a": {"xds_servers": {}}}"#,
            "authorities[\"a\"].xds_servers: expected an array, got an object",
        ),
        (
            r#""authorities": {"a": {"xds_servers": [{"server_uri": "b:2", "channel_creds": []}]}}"#,
            "authorities[\"a\"].xds_servers[0].channel_creds: expected at least one entry, got none",
        ),
        (
            r#""client_default_listener_resource_name_template": {}"#,
            "client_default_listener_resource_name_template: expected a string, got an object",
        ),
        (
            r#""client_default_listener_resource_name_template": "xdstp:%s""#,
            "client_default_listener_resource_name_template: \
             expected xdstp://authority/type/id, got \"xdstp:%s\"",
        ),
    ];
    for (field, expected) in cases {
        assert_eq!(error(&with(field)), format!("xDS bootstrap: {expected}"));
    }
    // Unset, one way or another.
    for field in [
        r#""authorities": null"#,
        r#""authorities": {}, "client_default_listener_resource_name_template": null"#,
    ] {
        let bootstrap = Bootstrap::from_json(&with(field)).unwrap();
        assert_eq!(bootstrap, Bootstrap::builder("a:1").unwrap().build());
    }
    let message = Bootstrap::builder("a:1")
        .unwrap()
        .authority("a", AuthorityConfig::builder().server("b:2").server(":1"))
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with(
            "xDS bootstrap from code: authorities[\"a\"].xds_servers[1].server_uri: expected host,"
        ),
        "{message}"
    );
}

/// gRFC A47: a template makes names of listeners.
#[test]
fn templates_of_another_type() {
    let cases = [
        (
            r#""authorities": {"a": {"client_listener_resource_name_template": "xdstp://a/t/%s"}}"#,
            "authorities[\"a\"].client_listener_resource_name_template: expected the resource type \
             envoy.config.listener.v3.Listener, got t in \"xdstp://a/t/%s\"",
        ),
        (
            r#""client_default_listener_resource_name_template":
                "xdstp://a/envoy.config.cluster.v3.Cluster/%s""#,
            "client_default_listener_resource_name_template: expected the resource type \
             envoy.config.listener.v3.Listener, got envoy.config.cluster.v3.Cluster in \
             \"xdstp://a/envoy.config.cluster.v3.Cluster/%s\"",
        ),
    ];
    for (field, expected) in cases {
        assert_eq!(error(&with(field)), format!("xDS bootstrap: {expected}"));
    }
}

/// gRFC A47: an empty template is one that is not set.
#[test]
fn empty_templates() {
    let empty = r#""client_default_listener_resource_name_template": """#;
    let bootstrap = Bootstrap::from_json(&with(empty)).unwrap();
    assert_eq!(bootstrap, Bootstrap::builder("a:1").unwrap().build());
    assert_eq!(bootstrap.listener_template, "%s");
    let with_template = |template: &str| {
        let authority = AuthorityConfig::builder().listener_template(template);
        let builder = Bootstrap::builder("a:1").unwrap();
        let builder = builder.listener_template("").unwrap();
        builder.authority("a", authority).unwrap().build()
    };
    let default = "xdstp://a/envoy.config.listener.v3.Listener/%s";
    assert_eq!(with_template(""), with_template(default));
    assert_eq!(with_template("").listener_template, "%s");
}
