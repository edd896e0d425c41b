//! The servers of a bootstrap in JSON form.
//!
//! The bootstrap has a list of servers, and so has every authority; this module reads both.

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
    // gRFC A27 once made the field optional; an empty list was never allowed.
    let channel_credentials = match json.get("channel_creds") {
        None => Some(Vec::new()),
        said => {
            let known = v.field("channel_creds", |v| parse_channel_credentials(said, v));
            Some(known).filter(|known| !known.is_empty())
        }
    };
    let call_credentials = match present(json, "call_creds") {
        Some(json) if guards.call_credentials => {
            v.field("call_creds", |v| parse_call_credentials(json, v))
        }
        _ => Vec::new(),
    };
    let features = v.field("server_features", |v| {
        parse_features(json.get("server_features"), v)
    });
    let server = ServerBuilder {
        uri: uri?.to_owned(),
        channel_credentials: channel_credentials?,
        call_credentials,
        features,
    };
    server.build_as_said(v)
}

/// The known entries, up to the first that every client supports. No client uses later entries (gRFC A27),
/// but they must be well-formed, as in gRPC C-core.
fn parse_channel_credentials(json: Option<&Json>, v: &mut Validator) -> Vec<ChannelCredentials> {
    let mut known = Vec::new();
    let mut others = Vec::new();
    let mut is_settled = false;
    for (i, entry) in list(json, "entry", v).iter().enumerate() {
        let Some((kind, config)) = v.index(i, |v| type_of(entry, v)) else {
            continue;
        };
        let credentials = match kind {
            "google_default" => ChannelCredentials::GoogleDefault,
            "insecure" => ChannelCredentials::Insecure,
            "tls" => {
                let files = v.index(i, |v| v.field("config", |v| parse_tls(config, v)));
                ChannelCredentials::Tls(files)
            }
            other => {
                others.push(other);
                continue;
            }
        };
        let is_everywhere = credentials != ChannelCredentials::GoogleDefault;
        if !is_settled {
            known.push(credentials);
        }
        is_settled |= is_everywhere;
    }
    if known.is_empty() && !others.is_empty() {
        let got = others.join(", ");
        v.error(format!(
            "expected a supported type (insecure, tls, google_default), got {got}"
        ));
    }
    known
}

/// The files that certificates come from (gRFC A65, A29).
pub(super) fn parse_tls(config: Option<&Object>, v: &mut Validator) -> TlsFiles {
    let default = TlsFiles::default();
    let Some(config) = config else {
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
            // The error of a field with a wrong type has been recorded already.
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

/// The supported entries, all of which are used. Others are ignored (gRFC A97).
fn parse_call_credentials(json: &Json, v: &mut Validator) -> Vec<CallCredentials> {
    let Json::Array(entries) = json else {
        v.error(format!("expected an array, got {}", kind_of(json)));
        return Vec::new();
    };
    let entries = entries.iter().enumerate();
    entries
        .filter_map(|(i, entry)| {
            v.index(i, |v| match type_of(entry, v)? {
                ("jwt_token_file", config) => v.field("config", |v| {
                    let none = Object::new();
                    let config = config.unwrap_or(&none);
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

/// The type of an entry of a list of credentials, and its configuration.
fn type_of<'a>(entry: &'a Json, v: &mut Validator) -> Option<(&'a str, Option<&'a Object>)> {
    let entry = object(entry, v)?;
    let kind = text_or_error(entry, "type", v);
    let config = match present(entry, "config") {
        None => Some(None),
        Some(json) => v.field("config", |v| object(json, v)).map(Some),
    };
    Some((kind?, config?))
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

/// The known features. Features that are not strings are ignored, because no known feature has such a form.
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
