//! Tests of the credentials and features of servers, and of certificate providers. The text may
//! name more than a client supports, so they check the choice of entries as well.

use std::time::Duration;

use super::{
    super::{
        Bootstrap, CALL_CREDENTIALS_VARIABLE, CallCredentials, CertificateProvider,
        ChannelCredentials, INLINE_VARIABLE, ServerConfig, ServerFeature, TlsFiles,
    },
    error, from_env,
};

fn with(fields: &str) -> String {
    format!(r#"{{"xds_servers": [{{"server_uri": "control:443", {fields}}}]}}"#)
}

fn creds(entries: &str) -> String {
    with(&format!(r#""channel_creds": {entries}"#))
}

fn tls(config: &str) -> String {
    creds(&format!(r#"[{{"type": "tls", "config": {config}}}]"#))
}

fn server(text: &str) -> ServerConfig {
    Bootstrap::from_json(text).unwrap().servers.remove(0)
}

fn built(server: super::super::ServerBuilder) -> ServerConfig {
    let bootstrap = Bootstrap::builder(server).unwrap().build();
    bootstrap.servers.into_iter().next().unwrap()
}

/// gRFC A65: every field is optional, and so is the config.
#[test]
fn tls_files() {
    let plain = built(ServerConfig::builder("control:443").tls(TlsFiles::default()));
    for config in ["{}", "null", r#"{"ca_certificate_file": null, "new": 1}"#] {
        assert_eq!(server(&tls(config)), plain, "{config}");
    }
    assert_eq!(server(&creds(r#"[{"type": "tls"}]"#)), plain);
    let ChannelCredentials::Tls(files) = &plain.channel_credentials[0] else {
        panic!("expected tls, got {plain:?}");
    };
    assert_eq!(files.refresh_interval, Duration::from_secs(600));

    let files = TlsFiles::default()
        .ca_certificate("/ca.pem")
        .identity("/cert.pem", "/key.pem")
        .refresh_interval(Duration::from_millis(1500));
    let full = r#"{
        "ca_certificate_file": "/ca.pem", "certificate_file": "/cert.pem",
        "private_key_file": "/key.pem", "refresh_interval": "1.5s"
    }"#;
    assert_eq!(
        server(&tls(full)),
        built(ServerConfig::builder("control:443").tls(files))
    );
}

/// S2-02 (part): errors of credentials name their field.
#[test]
fn invalid_tls_files() {
    let cases = [
        ("7", ": expected an object, got a number"),
        (
            r#"{"certificate_file": "/c"}"#,
            ".private_key_file: expected a path with certificate_file, got none",
        ),
        (
            r#"{"private_key_file": "/k"}"#,
            ".certificate_file: expected a path with private_key_file, got none",
        ),
        (
            r#"{"certificate_file": "/c", "private_key_file": 1}"#,
            ".private_key_file: expected a path, got a number",
        ),
        (
            r#"{"ca_certificate_file": ""}"#,
            ".ca_certificate_file: expected a path, got an empty string",
        ),
        (
            r#"{"refresh_interval": 600}"#,
            ".refresh_interval: expected a positive duration in seconds, as in \"600s\", got 600",
        ),
        (
            r#"{"refresh_interval": "10m"}"#,
            ".refresh_interval: expected a positive duration in seconds, as in \"600s\", \
             got \"10m\"",
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(
            error(&tls(config)),
            format!("xDS bootstrap: xds_servers[0].channel_creds[0].config{expected}")
        );
    }
}

/// S2-02 (part): entries after the first one that every client supports are not used. Earlier entries are kept, because
/// some clients are built with them.
#[test]
fn credentials_in_order() {
    let kinds = |entries: &str| {
        let server = server(&creds(entries));
        let kinds = server.channel_credentials.iter();
        kinds
            .map(ChannelCredentials::name)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let google = r#"{"type": "google_default", "config": {}}"#;
    assert_eq!(kinds(&format!("[{google}]")), "google_default");
    assert_eq!(
        kinds(&format!(
            r#"[{{"type": "new"}}, {google}, {{"type": "tls"}}, {{"type": "insecure"}}]"#
        )),
        "google_default tls"
    );
    assert_eq!(
        kinds(r#"[{"type": "insecure"}, {"type": "tls"}, {"type": "new"}]"#),
        "insecure"
    );
}

/// gRFC A97: `call_creds` are read only if the environment variable allows it.
#[test]
fn call_credentials_are_guarded() {
    let text = with(
        r#""channel_creds": [{"type": "tls"}], "call_creds": [
            {"type": "new", "config": {}},
            {"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}
        ]"#,
    );
    let read = |guard: Option<&str>| {
        let mut variables = vec![(INLINE_VARIABLE, text.clone().into())];
        variables.extend(guard.map(|guard| (CALL_CREDENTIALS_VARIABLE, guard.into())));
        from_env(&variables).unwrap().servers.remove(0)
    };
    for guard in [None, Some(""), Some("false"), Some("0"), Some("maybe")] {
        assert_eq!(read(guard).call_credentials, [], "{guard:?}");
    }
    let from_code = ServerConfig::builder("control:443")
        .tls(TlsFiles::default())
        .jwt_token_file("/token");
    let from_code = built(from_code);
    assert_eq!(
        from_code.call_credentials,
        [CallCredentials::JwtTokenFile("/token".into())]
    );
    for guard in ["true", "TRUE", "1"] {
        assert_eq!(read(Some(guard)), from_code);
    }
}

#[test]
fn invalid_call_credentials() {
    let cases = [
        ("7", ": expected an array, got a number"),
        ("[7]", "[0]: expected an object, got a number"),
        ("[{}]", "[0].type: expected a string, got none"),
        (
            r#"[{"type": "new", "config": 7}]"#,
            "[0].config: expected an object, got a number",
        ),
        (
            r#"[{"type": "jwt_token_file"}]"#,
            "[0].config.jwt_token_file: expected a path, got none",
        ),
        (
            r#"[{"type": "jwt_token_file", "config": []}]"#,
            "[0].config: expected an object, got an array",
        ),
        (
            r#"[{"type": "jwt_token_file", "config": {"jwt_token_file": ""}}]"#,
            "[0].config.jwt_token_file: expected a path, got an empty string",
        ),
    ];
    for (call_creds, expected) in cases {
        let text = with(&format!(
            r#""channel_creds": [{{"type": "tls"}}], "call_creds": {call_creds}"#
        ));
        let variables = [
            (INLINE_VARIABLE, text.clone().into()),
            (CALL_CREDENTIALS_VARIABLE, "true".into()),
        ];
        let message = from_env(&variables).unwrap_err().to_string();
        let path = "xDS bootstrap in GRPC_XDS_BOOTSTRAP_CONFIG: xds_servers[0].call_creds";
        assert_eq!(message, format!("{path}{expected}"));
        // Unread, it is not wrong either.
        from_env(&variables[..1]).unwrap();
    }
}

#[test]
fn features_have_meaning() {
    let features = r#"[
        "xds.delta", "fail_on_data_errors", "ignore_resource_deletion", "trusted_xds_server",
        "resource_timer_is_transient_error", "xds.delta", "brand_new"
    ]"#;
    let text = with(&format!(
        r#""channel_creds": [{{"type": "insecure"}}], "server_features": {features}"#
    ));
    let all = [
        ServerFeature::Delta,
        ServerFeature::FailOnDataErrors,
        ServerFeature::IgnoreResourceDeletion,
        ServerFeature::ResourceTimerIsTransientError,
        ServerFeature::TrustedXdsServer,
    ];
    let expected = all
        .into_iter()
        .fold(ServerConfig::builder("control:443"), |server, feature| {
            server.feature(feature)
        });
    let expected = built(expected);
    assert_eq!(server(&text), expected);
    for feature in all {
        assert!(expected.has_feature(feature), "{feature}");
    }
    // gRFC A88 has both spellings.
    let alias = text.replace("transient_error", "transient_failure");
    assert_eq!(server(&alias), expected);
    let plain = built(ServerConfig::builder("control:443"));
    assert!(!plain.has_feature(ServerFeature::Delta));
}

fn providers(providers: &str) -> String {
    format!(
        r#"{{"xds_servers": [{{"server_uri": "c:1", "channel_creds": [{{"type": "insecure"}}]}}],
            "certificate_providers": {providers}}}"#
    )
}

/// gRFC A29: `file_watcher` with its four fields. A plugin that is not known causes no error until a cluster names its
/// instance.
#[test]
fn certificate_providers() {
    let text = providers(
        r#"{
            "mesh": {"plugin_name": "file_watcher", "config": {
                "ca_certificate_file": "/ca.pem", "certificate_file": "/cert.pem",
                "private_key_file": "/key.pem", "refresh_interval": "60s"
            }},
            "ca": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/ca.pem"}},
            "cloud": {"plugin_name": "mesh_ca", "config": {"any": [1]}}
        }"#,
    );
    let found = Bootstrap::from_json(&text).unwrap().certificate_providers;
    let ca = TlsFiles::default().ca_certificate("/ca.pem");
    let mesh = ca.clone().identity("/cert.pem", "/key.pem");
    let mesh = mesh.refresh_interval(Duration::from_secs(60));
    let unknown = CertificateProvider::Unknown {
        plugin: "mesh_ca".to_owned(),
    };
    assert!(!unknown.is_supported());
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        [
            ("ca".to_owned(), CertificateProvider::FileWatcher(ca)),
            ("cloud".to_owned(), unknown),
            ("mesh".to_owned(), CertificateProvider::FileWatcher(mesh)),
        ]
    );
}

/// gRFC A29: errors of providers name the instance and the field.
#[test]
fn invalid_certificate_providers() {
    let watcher =
        |config: &str| format!(r#"{{"m": {{"plugin_name": "file_watcher", "config": {config}}}}}"#);
    let none = "certificate_providers[\"m\"].config: expected certificate_file and \
                private_key_file, ca_certificate_file, or all of them, got none";
    for (json, expected) in [
        (
            "[]".to_owned(),
            "certificate_providers: expected an object, got an array",
        ),
        (
            r#"{"m": 1}"#.to_owned(),
            "certificate_providers[\"m\"]: expected an object, got a number",
        ),
        (
            r#"{"m": {"config": {}}}"#.to_owned(),
            "certificate_providers[\"m\"].plugin_name: expected a string, got none",
        ),
        (r#"{"m": {"plugin_name": "file_watcher"}}"#.to_owned(), none),
        (watcher("{}"), none),
        (
            watcher("[]"),
            "certificate_providers[\"m\"].config: expected an object, got an array",
        ),
        (
            watcher(r#"{"certificate_file": "/c.pem"}"#),
            "certificate_providers[\"m\"].config.private_key_file: expected a path with \
             certificate_file, got none",
        ),
        (
            watcher(r#"{"private_key_file": "/k.pem"}"#),
            "certificate_providers[\"m\"].config.certificate_file: expected a path with \
             private_key_file, got none",
        ),
        (
            watcher(r#"{"ca_certificate_file": 5}"#),
            "certificate_providers[\"m\"].config.ca_certificate_file: expected a path, got a number",
        ),
        (
            watcher(r#"{"ca_certificate_file": "/ca.pem", "refresh_interval": "soon"}"#),
            "certificate_providers[\"m\"].config.refresh_interval: expected a positive duration in \
             seconds, as in \"600s\", got \"soon\"",
        ),
    ] {
        let error = error(&providers(&json));
        assert!(error.ends_with(expected), "{error}");
    }
}
