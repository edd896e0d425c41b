//! Tests of the bootstrap as a text or a file. Each error must name its field, so that an operator
//! can correct the text.

mod credentials;
mod federation;

use std::{collections::BTreeMap, ffi::OsString, io::Write};

use envoy_types::pb::{
    envoy::config::core::v3::{Locality, node::UserAgentVersionType},
    google::protobuf::value::Kind,
};

use super::{
    Bootstrap, BootstrapError, ChannelCredentials, FILE_VARIABLE, INLINE_VARIABLE, ServerAddress,
    is_false, is_true,
};
use crate::grpc::endpoints::LocalityId;

fn valid(node_id: &str) -> String {
    format!(
        r#"{{
            "xds_servers": [
                {{"server_uri": "localhost:18000", "channel_creds": [{{"type": "insecure"}}]}}
            ],
            "node": {{"id": "{node_id}"}}
        }}"#
    )
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn from_env(variables: &[(&str, OsString)]) -> Result<Bootstrap, BootstrapError> {
    let variables: BTreeMap<_, _> = variables.iter().cloned().collect();
    Bootstrap::from_lookup(|name| variables.get(name).cloned())
}

fn error(text: &str) -> String {
    Bootstrap::from_json(text).unwrap_err().to_string()
}

/// S2-01: the file wins over the inline text, and each is read if it is alone.
#[test]
fn file_beats_inline() {
    let file = file(&valid("file"));
    let file = (FILE_VARIABLE, file.path().into());
    let inline = (INLINE_VARIABLE, valid("inline").into());
    let no_file = (FILE_VARIABLE, OsString::new());

    let id = |variables: &[_]| from_env(variables).unwrap().node.id.clone();
    assert_eq!(id(&[file.clone(), inline.clone()]), "file");
    assert_eq!(id(&[file]), "file");
    assert_eq!(id(std::slice::from_ref(&inline)), "inline");
    // An empty variable counts as unset.
    assert_eq!(id(&[no_file, inline]), "inline");
}

/// S2-01: a broken file is an error even with valid inline text, and names its path.
#[test]
fn broken_file_does_not_fall_through() {
    let inline = (INLINE_VARIABLE, OsString::from(valid("inline")));
    let broken = file("{\n  \"xds_servers\": [,]\n}");
    let path = broken.path().display().to_string();
    let message = from_env(&[(FILE_VARIABLE, broken.path().into()), inline.clone()])
        .unwrap_err()
        .to_string();
    let expected = format!("xDS bootstrap file {path} (GRPC_XDS_BOOTSTRAP): not valid JSON: ");
    assert!(message.starts_with(&expected), "{message}");
    assert!(message.ends_with("at line 2 column 19"), "{message}");

    let message = from_env(&[(FILE_VARIABLE, "/nonexistent/boot.json".into()), inline])
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "xDS bootstrap file /nonexistent/boot.json (GRPC_XDS_BOOTSTRAP): \
         cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn errors_of_inline_text_name_the_variable() {
    let message = from_env(&[(INLINE_VARIABLE, "{}".into())])
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "xDS bootstrap in GRPC_XDS_BOOTSTRAP_CONFIG: xds_servers: expected an array, got none"
    );
}

/// S2-04 (part): no bootstrap is an error that says how to give one.
#[test]
fn no_bootstrap() {
    let error = from_env(&[]).unwrap_err();
    assert!(matches!(error, BootstrapError::Missing));
    assert_eq!(
        error.to_string(),
        "no xDS bootstrap: neither GRPC_XDS_BOOTSTRAP (a file) nor \
         GRPC_XDS_BOOTSTRAP_CONFIG (JSON) is set"
    );
}

/// S2-02: every error names its field.
#[test]
fn invalid_fields() {
    let server = |fields: &str| format!(r#"{{"xds_servers": [{{{fields}}}]}}"#);
    let creds = |creds: &str| server(&format!(r#""server_uri": "a:1", "channel_creds": {creds}"#));
    let cases = [
        ("[]".to_owned(), "expected an object, got an array; xds_servers: expected an array, got none"),
        (r#"{"xds_servers": []}"#.to_owned(), "xds_servers: expected at least one server, got none"),
        (r#"{"xds_servers": {}}"#.to_owned(), "xds_servers: expected an array, got an object"),
        (r#"{"xds_servers": ["x"]}"#.to_owned(), "xds_servers[0]: expected an object, got a string"),
        (
            server(""),
            "xds_servers[0].server_uri: expected a string, got none",
        ),
        (creds("[]"), "xds_servers[0].channel_creds: expected at least one entry, got none"),
        (creds("null"), "xds_servers[0].channel_creds: expected an array, got null"),
        (
            creds(r#"[{"type": "alts"}, {"type": "xds"}]"#),
            "xds_servers[0].channel_creds: \
             expected a supported type (insecure, tls, google_default), got alts, xds",
        ),
        (creds("[{}]"), "xds_servers[0].channel_creds[0].type: expected a string, got none"),
        (creds("[7]"), "xds_servers[0].channel_creds[0]: expected an object, got a number"),
        (
            creds(r#"[{"type": "insecure", "config": 1}, {"config": {}}, {"type": "new", "config": []}]"#),
            "xds_servers[0].channel_creds[0].config: expected an object, got a number; \
             xds_servers[0].channel_creds[1].type: expected a string, got none; \
             xds_servers[0].channel_creds[2].config: expected an object, got an array",
        ),
        (
            creds(r#"[{"type": "insecure"}], "server_features": "xds_v3""#),
            "xds_servers[0].server_features: expected an array, got a string",
        ),
        (
            creds(r#"[{"type": "insecure"}]"#).replace("}]}]}", "}]}], \"node\": 1}"),
            "node: expected an object, got a number",
        ),
        (
            creds(r#"[{"type": "insecure"}]"#).replace(
                "}]}]}",
                r#"}]}], "node": {"id": 1, "metadata": [], "locality": {"zone": true, "subZone": 1}}}"#,
            ),
            "node.id: expected a string, got a number; \
             node.locality.zone: expected a string, got a boolean; \
             node.locality.subZone: expected a string, got a number; \
             node.metadata: expected an object, got an array",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(&text), format!("xDS bootstrap: {expected}"), "{text}");
    }
}

/// gRFC A27 once made `channel_creds` optional. A server without it has no credentials here, and its URI may
/// be `https`, because the client decides then.
#[test]
fn credentials_may_be_left_unsaid() {
    for uri in ["control:443", "https://control"] {
        let text = format!(r#"{{"xds_servers": [{{"server_uri": "{uri}"}}]}}"#);
        let server = Bootstrap::from_json(&text).unwrap().servers.remove(0);
        assert_eq!(server.channel_credentials, []);
        assert_eq!(server.authority(), "control:443");
        assert_eq!(server.wants_tls(), uri.starts_with("https"));
    }
}

/// A repeated key is an error at any depth, because the text does not say which value is meant.
#[test]
fn keys_given_twice_are_refused() {
    let twice = valid("x").replace(r#""id""#, r#""metadata": {"a": [{"b": 1, "b": 2}]}, "id""#);
    for text in [r#"{"node": {}, "node": {}}"#, twice.as_str()] {
        let message = error(text);
        assert!(message.contains("expected each key once"), "{message}");
        assert!(message.contains("at line "), "{message}");
    }
}

/// S2-02 (part): the first supported credentials are used, and those after them are not.
#[test]
fn first_supported_credentials() {
    let text = valid("x").replace(
        r#"[{"type": "insecure"}]"#,
        r#"[{"type": "alts", "config": {"a": 1}}, {"type": "insecure"}, {"type": "tls"}]"#,
    );
    assert_eq!(
        Bootstrap::from_json(&text).unwrap(),
        Bootstrap::from_json(&valid("x")).unwrap()
    );
}

/// S2-03: unknown fields and features of any JSON type are ignored.
#[test]
fn unknown_things_are_ignored() {
    let plain = Bootstrap::from_json(&valid("x")).unwrap();
    let text = valid("x")
        .replacen(
            '{',
            r#"{"certificate_provider": {"a": []}, "new": null, "#,
            1,
        )
        .replace(
            r#""server_uri""#,
            r#""new": 1, "server_features": [{"a": 1}, 7, null, ["b"]], "server_uri""#,
        )
        .replace(r#""id""#, r#""new": {}, "build_version": [1], "id""#);
    assert_eq!(Bootstrap::from_json(&text).unwrap(), plain);

    let text = text.replace("7, null", r#""xds_v3", "brand_new""#);
    assert_eq!(Bootstrap::from_json(&text).unwrap(), plain);
}

/// gRFC A27: the node is a whole proto, including the fields that gRPC itself does not use. Both spellings of a field
/// name are read.
#[test]
fn node_has_fields_for_servers() {
    let text = valid("x").replace(
        r#""id": "x""#,
        r#""dynamic_parameters": {"type": {"params": {"k": "v"}}},
           "extensions": [{"name": "e", "category": "c", "disabled": true, "typeUrls": ["t"],
                           "version": {"version": {"majorNumber": 1, "patch": "2"}}}],
           "listening_addresses": [
               {"socket_address": {"address": "10.0.0.1", "port_value": 80}},
               {"pipe": {"path": "/run/s", "mode": 7}}
           ]"#,
    );
    let node = Bootstrap::from_json(&text).unwrap().node;
    assert_eq!(node.dynamic_parameters["type"].params["k"], "v");
    let extension = &node.extensions[0];
    assert_eq!((&*extension.name, &*extension.category), ("e", "c"));
    assert!(extension.disabled);
    assert_eq!(extension.type_urls, ["t"]);
    let version = extension.version.as_ref().unwrap().version.unwrap();
    assert_eq!((version.major_number, version.patch), (1, 2));
    #[expect(deprecated, reason = "it is sent all the same")]
    let addresses = format!("{:?}", node.listening_addresses);
    for part in ["10.0.0.1", "PortValue(80)", "/run/s", "mode: 7"] {
        assert!(addresses.contains(part), "{part} is not in {addresses}");
    }

    let bad = valid("x").replace(
        r#""id": "x""#,
        r#""extensions": [{"type_urls": [1], "disabled": 1, "version": []}],
           "listeningAddresses": [{}], "dynamic_parameters": {"a": 1}"#,
    );
    assert_eq!(
        error(&bad),
        "xDS bootstrap: node.dynamic_parameters.a: expected an object, got a number; \
         node.extensions[0].version: expected an object, got an array; \
         node.extensions[0].disabled: expected a boolean, got a number; \
         node.extensions[0].type_urls[0]: expected a string, got a number; \
         node.listeningAddresses[0]: expected a socket_address or a pipe"
    );
}

#[test]
fn node_is_read_whole() {
    let text = valid("x").replace(
        r#""id": "x""#,
        r#""id": "web-1", "cluster": "web", "user_agent_name": "spoofed",
           "userAgentVersion": "9", "client_features": ["spoofed"],
           "locality": {"region": "eu", "zone": "a", "sub_zone": "rack-1"},
           "metadata": {"n": 1.5, "b": true, "z": null, "l": ["x", {"y": "z"}]}"#,
    );
    let node = Bootstrap::from_json(&text).unwrap().node;
    assert_eq!((&*node.id, &*node.cluster), ("web-1", "web"));
    let locality = Locality {
        region: "eu".to_owned(),
        zone: "a".to_owned(),
        sub_zone: "rack-1".to_owned(),
    };
    assert_eq!(node.locality, Some(locality));
    let metadata = node.metadata.clone().unwrap().fields;
    let kind = |name: &str| metadata[name].kind.clone().unwrap();
    assert_eq!(kind("n"), Kind::NumberValue(1.5));
    assert_eq!(kind("b"), Kind::BoolValue(true));
    assert_eq!(kind("z"), Kind::NullValue(0));
    let Kind::ListValue(list) = kind("l") else {
        panic!("expected a list");
    };
    assert_eq!(list.values[0].kind, Some(Kind::StringValue("x".to_owned())));
    let Some(Kind::StructValue(inner)) = &list.values[1].kind else {
        panic!("expected a struct");
    };
    assert_eq!(
        inner.fields["y"].kind,
        Some(Kind::StringValue("z".to_owned()))
    );
}

/// The client's own name, version and features are never taken from the file.
#[test]
fn client_introduces_itself() {
    let text = valid("x").replace(
        r#""id": "x""#,
        r#""user_agent_name": "spoofed", "client_features": ["spoofed"]"#,
    );
    let from_code = Bootstrap::builder("localhost:18000").unwrap().build();
    for bootstrap in [Bootstrap::from_json(&text).unwrap(), from_code] {
        let node = bootstrap.node;
        assert_eq!(node.user_agent_name, "crowfly");
        let version = env!("CARGO_PKG_VERSION").to_owned();
        assert_eq!(
            node.user_agent_version_type,
            Some(UserAgentVersionType::UserAgentVersion(version))
        );
        assert_eq!(
            node.client_features,
            [
                "envoy.lb.does_not_support_overprovisioning",
                "xds.config.resource-in-sotw"
            ]
        );
    }
}

#[test]
fn sub_zone_in_either_spelling() {
    for field in ["sub_zone", "subZone"] {
        let node = format!(r#""locality": {{"{field}": "r"}}"#);
        let text = valid("x").replace(r#""id": "x""#, &node);
        let node = Bootstrap::from_json(&text).unwrap().node;
        assert_eq!(node.locality.as_ref().unwrap().sub_zone, "r");
    }
}

#[test]
fn node_may_be_absent() {
    let text = r#"{"xds_servers": [
        {"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}
    ]}"#;
    assert_eq!(Bootstrap::from_json(text).unwrap().node.id, "");
}

/// gRPC's naming document: the port is 443 if there is none, and a path may be percent-encoded.
#[test]
fn server_uris() {
    let good = [
        ("control", "control:443"),
        ("control:", "control:443"),
        ("control:https", "control:443"),
        ("control:http", "control:80"),
        ("dns:control", "control:443"),
        ("dns:/control", "control:443"),
        ("dns:///control", "control:443"),
        ("dns:///control%3A80", "control:80"),
        ("127.0.0.1", "127.0.0.1:443"),
        ("::1", "[::1]:443"),
        ("[::1]", "[::1]:443"),
        ("ipv4:127.0.0.1", "127.0.0.1:443"),
        ("ipv6:::1", "[::1]:443"),
        ("ipv6:[::1]", "[::1]:443"),
        ("http://control", "control:80"),
        ("localhost:18000", "localhost:18000"),
        ("127.0.0.1:18000", "127.0.0.1:18000"),
        ("[::1]:18000", "[::1]:18000"),
        ("dns:///control.mesh:443", "control.mesh:443"),
        ("dns:control:443", "control:443"),
        ("http://control:80", "control:80"),
        ("http://control:80/", "control:80"),
        ("ipv4:127.0.0.1:80", "127.0.0.1:80"),
        ("ipv6:[::1]:80", "[::1]:80"),
    ];
    for (uri, expected) in good {
        let server = Bootstrap::builder(uri).unwrap().build().servers.remove(0);
        assert_eq!(server.authority(), expected);
        assert_eq!(server.uri, uri);
    }
    let bad = [
        "",
        ":80",
        "host:0",
        "host:65536",
        "host:+80",
        "host:smtp",
        "[::1:80",
        "a:b:80",
        "a b:80",
        "http://host:80/path",
        "http:host:80",
        "unix:",
        "unix://run/xds.sock",
        "unix-abstract:xds",
        "dns://8.8.8.8/host:80",
        "ipv4:host:80",
        "ipv4:127.0.0.1,127.0.0.2",
        "ipv6:127.0.0.1:80",
    ];
    for uri in bad {
        let message = Bootstrap::builder(uri).unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "xDS bootstrap from code: xds_servers[0].server_uri: expected host, host:port, \
                 dns:///host:port, http://host:port, ipv4:address:port, ipv6:[address]:port or \
                 unix:path, got {uri:?}"
            )
        );
    }
}

/// gRPC's naming document: a path that may be relative, or an absolute one behind two slashes. The
/// authority is `localhost`, as in gRPC.
#[test]
fn unix_sockets() {
    for (uri, path) in [
        ("unix:/run/xds.sock", "/run/xds.sock"),
        ("unix:///run/xds.sock", "/run/xds.sock"),
        ("unix:run/xds.sock", "run/xds.sock"),
        ("unix:/run/x%20ds.sock", "/run/x ds.sock"),
    ] {
        let server = Bootstrap::builder(uri).unwrap().build().servers.remove(0);
        assert_eq!(server.address(), &ServerAddress::Unix(path.into()));
        assert_eq!(server.authority(), "localhost");
    }
}

/// A server with an `https` URI is never connected to in plaintext.
#[test]
fn https_needs_more_than_insecure_credentials() {
    let message = Bootstrap::builder("https://control:443")
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("without https for insecure channel_creds"),
        "{message}"
    );
    // An https server with a list of credentials does not fall back to plaintext either.
    let text = valid("x")
        .replace("localhost:18000", "https://localhost:18000")
        .replace(
            r#"[{"type": "insecure"}]"#,
            r#"[{"type": "google_default"}, {"type": "insecure"}]"#,
        );
    let server = Bootstrap::from_json(&text).unwrap().servers.remove(0);
    assert_eq!(
        server.channel_credentials,
        [ChannelCredentials::GoogleDefault]
    );
}

#[test]
fn builder_is_equal_to_json() {
    let built = Bootstrap::builder("localhost:18000")
        .unwrap()
        .node_id("x")
        .locality(&LocalityId::new("eu", "a", ""))
        .build();
    let text = valid("x").replace(
        r#""id""#,
        r#""locality": {"region": "eu", "zone": "a"}, "id""#,
    );
    assert_eq!(Bootstrap::from_json(&text).unwrap(), built);

    let two = Bootstrap::builder("a:1")
        .unwrap()
        .server("b:2")
        .unwrap()
        .build();
    assert_eq!(two.servers.len(), 2);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(at: proptest::sample::Index, text in ".{0,4}") {
        let valid = valid("web-1");
        let at = at.index(valid.len());
        let _ = Bootstrap::from_json(&format!("{}{text}{}", &valid[..at], &valid[at + 1..]));
    }
}

/// Guards are read as gRPC reads them: a value that is neither true nor false has no effect.
#[test]
fn guards_say_yes_or_no() {
    let value = |text: &str| Some(OsString::from(text));
    for yes in ["1", "t", "true", "TRUE", "y", "Yes"] {
        assert!(is_true(value(yes)) && !is_false(value(yes)), "{yes}");
    }
    for no in ["0", "f", "false", "FALSE", "n", "No"] {
        assert!(is_false(value(no)) && !is_true(value(no)), "{no}");
    }
    for neither in [None, value(""), value("on"), value("2")] {
        assert!(
            !is_true(neither.clone()) && !is_false(neither.clone()),
            "{neither:?}"
        );
    }
}
