//! The JSON form of the bootstrap (gRFC A27).
//!
//! Read field by field rather than derived: unknown fields are ignored, features may be of any JSON
//! type (gRFC A30), and every problem is told with its path.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value as Json;

use super::{Bootstrap, BootstrapError, ChannelCredentials, Origin, ServerConfig, node};
use crate::Validator;

pub(super) type Object = serde_json::Map<String, Json>;

pub(super) fn parse(text: &str, origin: &Origin) -> Result<Bootstrap, BootstrapError> {
    let json: Json = serde_json::from_str(text).map_err(|source| BootstrapError::Syntax {
        origin: origin.clone(),
        source: Arc::new(source),
    })?;
    let mut v = Validator::default();
    let bootstrap = parse_root(&json, &mut v);
    v.finish(bootstrap)
        .map_err(|errors| BootstrapError::Invalid {
            origin: origin.clone(),
            errors,
        })
}

fn parse_root(json: &Json, v: &mut Validator) -> Bootstrap {
    let empty = Object::new();
    let json = object(json, v).unwrap_or(&empty);
    let servers = v.field("xds_servers", |v| {
        let servers = list(json.get("xds_servers"), "server", v)
            .iter()
            .enumerate();
        servers
            .filter_map(|(i, server)| v.index(i, |v| parse_server(server, v)))
            .collect()
    });
    let node = match json.get("node") {
        None | Some(Json::Null) => Default::default(),
        Some(json) => v.field("node", |v| node::parse(json, v)),
    };
    Bootstrap {
        servers,
        node: node::introduce(node),
    }
}

fn parse_server(json: &Json, v: &mut Validator) -> Option<ServerConfig> {
    let json = object(json, v)?;
    let uri = match json.get("server_uri") {
        Some(Json::String(uri)) => Some(uri),
        other => {
            let got = other.map_or("none", kind_of);
            v.error_at("server_uri", format!("expected a string, got {got}"));
            None
        }
    };
    let credentials = v.field("channel_creds", |v| {
        parse_credentials(json.get("channel_creds"), v)
    });
    let features = v.field("server_features", |v| {
        parse_features(json.get("server_features"), v)
    });
    ServerConfig::new(uri?, credentials?, features, v)
}

/// The first entry of a supported type wins, and those after it are not looked at (gRFC A27).
fn parse_credentials(json: Option<&Json>, v: &mut Validator) -> Option<ChannelCredentials> {
    let entries = list(json, "entry", v);
    let mut others = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let kind = v.index(i, |v| {
            let kind = object(entry, v)?.get("type");
            if !kind.is_some_and(Json::is_string) {
                let got = kind.map_or("none", kind_of);
                v.error_at("type", format!("expected a string, got {got}"));
            }
            kind?.as_str()
        });
        match kind {
            Some("insecure") => return Some(ChannelCredentials::Insecure),
            other => others.extend(other),
        }
    }
    if !others.is_empty() {
        let got = others.join(", ");
        v.error(format!("expected a supported type (insecure), got {got}"));
    }
    None
}

/// Features that are no strings are none we know.
fn parse_features(json: Option<&Json>, v: &mut Validator) -> BTreeSet<String> {
    match json {
        None | Some(Json::Null) => BTreeSet::new(),
        Some(Json::Array(items)) => {
            let texts = items.iter().filter_map(Json::as_str);
            texts.map(str::to_owned).collect()
        }
        Some(other) => {
            v.error(format!("expected an array, got {}", kind_of(other)));
            BTreeSet::new()
        }
    }
}

/// The items of a required list, which has at least one.
fn list<'a>(json: Option<&'a Json>, noun: &str, v: &mut Validator) -> &'a [Json] {
    match json {
        Some(Json::Array(items)) => {
            if items.is_empty() {
                v.error(format!("expected at least one {noun}, got none"));
            }
            items
        }
        other => {
            let got = other.map_or("none", kind_of);
            v.error(format!("expected an array, got {got}"));
            &[]
        }
    }
}

pub(super) fn object<'a>(json: &'a Json, v: &mut Validator) -> Option<&'a Object> {
    if !json.is_object() {
        v.error(format!("expected an object, got {}", kind_of(json)));
    }
    json.as_object()
}

pub(super) fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}
