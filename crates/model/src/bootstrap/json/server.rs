//! The servers of a bootstrap in JSON form.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::Value as Json;

use super::{Guards, Object, kind_of, list, object, present, text_or_error};
use crate::{
    Validator,
    bootstrap::{
        CallCredentials, ChannelCredentials, IdentityFiles, ServerBuilder, ServerConfig,
        ServerFeature, TlsFiles, duration,
    },
};

pub(super) fn parse(json: &Json, guards: Guards, v: &mut Validator) -> Option<ServerConfig> {
    let json = object(json, v)?;
    let uri = text_or_error(json, "server_uri", v);
    let channel_credentials = v.field("channel_creds", |v| {
        parse_channel_credentials(json.get("channel_creds"), v)
    });
    let call_credentials = match present(json, "call_creds") {
        Some(json) if guards.call_credentials => {
            v.field("call_creds", |v| parse_call_credentials(json, v))
        }
        _ => Vec::new(),
    };
    let features = v.field("server_features", |v| {
        parse_features(json.get("server_features"), v)
    });
    let uri = uri?.to_owned();
    if channel_credentials.is_empty() {
        return None;
    }
    let server = ServerBuilder {
        uri,
        channel_credentials,
        call_credentials,
        features,
    };
    server.build(v)
}

/// Entries up to the first that every client supports. Those after it are of no use to any, and not
/// looked at (gRFC A27).
fn parse_channel_credentials(json: Option<&Json>, v: &mut Validator) -> Vec<ChannelCredentials> {
    let mut known = Vec::new();
    let mut others = Vec::new();
    for (i, entry) in list(json, "entry", v).iter().enumerate() {
        match v.index(i, |v| type_of(entry, v)) {
            Some(("google_default", _)) => known.push(ChannelCredentials::GoogleDefault),
            Some(("insecure", _)) => {
                known.push(ChannelCredentials::Insecure);
                return known;
            }
            Some(("tls", entry)) => {
                let files = v.index(i, |v| v.field("config", |v| parse_tls(entry, v)));
                known.push(ChannelCredentials::Tls(files));
                return known;
            }
            Some((other, _)) => others.push(other),
            None => {}
        }
    }
    if known.is_empty() && !others.is_empty() {
        let got = others.join(", ");
        v.error(format!(
            "expected a supported type (insecure, tls, google_default), got {got}"
        ));
    }
    known
}

fn parse_tls(entry: &Object, v: &mut Validator) -> TlsFiles {
    let default = TlsFiles::default();
    let Some(config) = present(entry, "config").and_then(|json| object(json, v)) else {
        return default;
    };
    let identity = match ["certificate_file", "private_key_file"].map(|name| path(config, name, v))
    {
        [Some(certificate), Some(private_key)] => Some(IdentityFiles {
            certificate,
            private_key,
        }),
        [None, None] => None,
        [certificate, _] => {
            let (missing, other) = match certificate {
                Some(_) => ("private_key_file", "certificate_file"),
                None => ("certificate_file", "private_key_file"),
            };
            // A field of the wrong type has been told of already.
            if present(config, missing).is_none() {
                v.error_at(missing, format!("expected a path with {other}, got none"));
            }
            None
        }
    };
    TlsFiles {
        ca_certificate: path(config, "ca_certificate_file", v),
        identity,
        refresh_interval: refresh_interval(config, v).unwrap_or(default.refresh_interval),
    }
}

fn refresh_interval(config: &Object, v: &mut Validator) -> Option<std::time::Duration> {
    let json = present(config, "refresh_interval")?;
    let interval = json.as_str().and_then(duration::parse);
    if interval.is_none() {
        let got = json.to_string();
        let message = format!("expected a positive duration in seconds, as in \"600s\", got {got}");
        v.error_at("refresh_interval", message);
    }
    interval
}

/// All that are supported are used, and others ignored (gRFC A97).
fn parse_call_credentials(json: &Json, v: &mut Validator) -> Vec<CallCredentials> {
    let Json::Array(entries) = json else {
        v.error(format!("expected an array, got {}", kind_of(json)));
        return Vec::new();
    };
    let entries = entries.iter().enumerate();
    entries
        .filter_map(|(i, entry)| {
            v.index(i, |v| match type_of(entry, v)? {
                ("jwt_token_file", entry) => v.field("config", |v| {
                    let none = Json::Object(Object::new());
                    let config = object(present(entry, "config").unwrap_or(&none), v)?;
                    if present(config, "jwt_token_file").is_none() {
                        v.error_at("jwt_token_file", "expected a path, got none");
                    }
                    path(config, "jwt_token_file", v).map(CallCredentials::JwtTokenFile)
                }),
                _ => None,
            })
        })
        .collect()
}

/// The type of an entry of a list of credentials, and the entry.
fn type_of<'a>(entry: &'a Json, v: &mut Validator) -> Option<(&'a str, &'a Object)> {
    let entry = object(entry, v)?;
    Some((text_or_error(entry, "type", v)?, entry))
}

fn path(json: &Object, name: &str, v: &mut Validator) -> Option<PathBuf> {
    match present(json, name)? {
        Json::String(path) if !path.is_empty() => Some(path.into()),
        other => {
            let got = match other {
                Json::String(_) => "an empty string",
                other => kind_of(other),
            };
            v.error_at(name, format!("expected a path, got {got}"));
            None
        }
    }
}

/// Features that are no strings are none we know.
fn parse_features(json: Option<&Json>, v: &mut Validator) -> BTreeSet<ServerFeature> {
    match json {
        None | Some(Json::Null) => BTreeSet::new(),
        Some(Json::Array(items)) => {
            let names = items.iter().filter_map(Json::as_str);
            names.filter_map(ServerFeature::from_name).collect()
        }
        Some(other) => {
            v.error(format!("expected an array, got {}", kind_of(other)));
            BTreeSet::new()
        }
    }
}
