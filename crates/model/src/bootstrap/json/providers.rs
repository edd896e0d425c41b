//! The certificate providers of a bootstrap in JSON form (gRFC A29). A provider of an unknown
//! plugin is kept, because only clusters that name it are refused.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Object, object, present, server::parse_tls, text_or_error};
use crate::{Validator, bootstrap::CertificateProvider};

const FIELD: &str = "certificate_providers";

pub(super) fn parse(root: &Object, v: &mut Validator) -> BTreeMap<String, CertificateProvider> {
    let Some(json) = present(root, FIELD) else {
        return BTreeMap::new();
    };
    let Some(json) = v.field(FIELD, |v| object(json, v)) else {
        return BTreeMap::new();
    };
    json.iter()
        .filter_map(|(name, json)| {
            let provider = v.field(&format!("{FIELD}[{name:?}]"), |v| parse_provider(json, v));
            Some((name.clone(), provider?))
        })
        .collect()
}

/// A plugin that is not known is no error, as in grpc-go, because no cluster may need it.
fn parse_provider(json: &Json, v: &mut Validator) -> Option<CertificateProvider> {
    let json = object(json, v)?;
    let plugin = text_or_error(json, "plugin_name", v)?;
    if plugin != "file_watcher" {
        let plugin = plugin.to_owned();
        return Some(CertificateProvider::Unknown { plugin });
    }
    v.field("config", |v| {
        let config = match present(json, "config") {
            None => None,
            Some(config) => Some(object(config, v)?),
        };
        let files = parse_tls(config, v);
        let names = ["certificate_file", "private_key_file", "ca_certificate_file"];
        let are_none = |config: &Object| names.iter().all(|name| present(config, name).is_none());
        if config.is_none_or(are_none) {
            v.error("expected certificate_file and private_key_file, ca_certificate_file, or all of them, got none");
        }
        Some(CertificateProvider::FileWatcher(files))
    })
}
