//! The JSON form of the bootstrap (gRFC A27, A29, A47, A65, A97).
//!
//! The JSON is read field by field and not by derived code, because every problem must be reported with its
//! path. Unknown fields are ignored, and features may be of any JSON type (gRFC A30).

mod distinct;
mod providers;
mod server;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;

use self::distinct::Distinct;
use super::{
    AuthorityConfig, Bootstrap, BootstrapError, DEFAULT_TEMPLATE, Origin, ServerConfig,
    authority::check_template, node,
};
use crate::Validator;

pub(super) type Object = serde_json::Map<String, Json>;

/// The switches for fields that gRPC still calls experimental. A field is ignored if its switch is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards {
    pub(super) call_credentials: bool,
}

pub(super) fn parse(
    text: &str,
    origin: &Origin,
    guards: Guards,
) -> Result<Bootstrap, BootstrapError> {
    let Distinct(json) = serde_json::from_str(text).map_err(|source| BootstrapError::Syntax {
        origin: origin.clone(),
        source: Arc::new(source),
    })?;
    let mut v = Validator::default();
    let bootstrap = parse_root(&json, guards, &mut v);
    v.finish(bootstrap)
        .map_err(|errors| BootstrapError::Invalid {
            origin: origin.clone(),
            errors,
        })
}

fn parse_root(json: &Json, guards: Guards, v: &mut Validator) -> Bootstrap {
    let empty = Object::new();
    let json = object(json, v).unwrap_or(&empty);
    let servers = v.field("xds_servers", |v| {
        let servers = list(json.get("xds_servers"), "server", v);
        parse_servers(servers, guards, v)
    });
    let template = "client_default_listener_resource_name_template";
    let listener_template = match text(json, template, v).filter(|text| !text.is_empty()) {
        None => DEFAULT_TEMPLATE.to_owned(),
        Some(found) => {
            v.field(template, |v| check_template(found, v));
            found.to_owned()
        }
    };
    let node = match present(json, "node") {
        None => Default::default(),
        Some(json) => v.field("node", |v| node::parse(json, v)),
    };
    Bootstrap {
        servers,
        authorities: parse_authorities(json, guards, v),
        listener_template,
        certificate_providers: providers::parse(json, v),
        node: node::introduce(node).into(),
    }
}

fn parse_servers(json: &[Json], guards: Guards, v: &mut Validator) -> Vec<ServerConfig> {
    let servers = json.iter().enumerate();
    servers
        .filter_map(|(i, json)| v.index(i, |v| server::parse(json, guards, v)))
        .collect()
}

fn parse_authorities(
    root: &Object,
    guards: Guards,
    v: &mut Validator,
) -> BTreeMap<String, AuthorityConfig> {
    let Some(json) = present(root, "authorities") else {
        return BTreeMap::new();
    };
    let Some(json) = v.field("authorities", |v| object(json, v)) else {
        return BTreeMap::new();
    };
    json.iter()
        .filter_map(|(name, json)| {
            let authority = v.field(&format!("authorities[{name:?}]"), |v| {
                parse_authority(name, json, guards, v)
            });
            Some((name.clone(), authority?))
        })
        .collect()
}

fn parse_authority(
    name: &str,
    json: &Json,
    guards: Guards,
    v: &mut Validator,
) -> Option<AuthorityConfig> {
    let json = object(json, v)?;
    let servers = v.field("xds_servers", |v| match present(json, "xds_servers") {
        None => Vec::new(),
        Some(Json::Array(servers)) => parse_servers(servers, guards, v),
        Some(other) => {
            v.error(format!("expected an array, got {}", kind_of(other)));
            Vec::new()
        }
    });
    let template = text(json, "client_listener_resource_name_template", v);
    Some(AuthorityConfig::new(
        name,
        template.map(str::to_owned),
        servers,
        v,
    ))
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

/// A field that is set; null is not.
fn present<'a>(json: &'a Object, name: &str) -> Option<&'a Json> {
    json.get(name).filter(|json| !json.is_null())
}

/// A string field that may be unset.
fn text<'a>(json: &'a Object, name: &str, v: &mut Validator) -> Option<&'a str> {
    present(json, name)?;
    text_or_error(json, name, v)
}

/// A required string field.
fn text_or_error<'a>(json: &'a Object, name: &str, v: &mut Validator) -> Option<&'a str> {
    match json.get(name) {
        Some(Json::String(text)) => Some(text),
        other => {
            let got = other.map_or("none", kind_of);
            v.error_at(name, format!("expected a string, got {got}"));
            None
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
