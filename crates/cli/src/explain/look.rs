//! Reads single resources and DNS names from the view, as reports.
//!
//! A missing or refused resource is a report, too, because that is the line that an operator looks
//! for.

use std::sync::Arc;

use crowfly_model::{
    ResourceType,
    grpc::{Endpoints, cluster::DnsName},
};
use crowfly_xds::{CacheEntry, Key, ResourceStatus, View};

use super::ResourceReport;

/// The report on a resource, and the value of the resource if there is one.
pub(super) fn resource<R: ResourceType>(
    view: &View,
    name: &str,
) -> (ResourceReport, Option<Arc<R::Parsed>>) {
    let key = Key::of::<R>(name);
    let entry = view.cache().entry(&key);
    let mut found = ResourceReport {
        state: state(entry.map(CacheEntry::state).unwrap_or_default()),
        version: entry
            .and_then(CacheEntry::received)
            .map(|received| received.version.to_string()),
        refused_version: entry.and_then(refused),
        ..ResourceReport::new(name, "REQUESTED")
    };
    let seen = view.read::<R>(&key);
    let value = seen.and_then(|seen| {
        found.note = seen.ambient.map(|error| error.reason.to_string());
        let value = seen.value;
        value
            .map_err(|error| found.error = Some(error.reason.to_string()))
            .ok()
    });
    if let Some(value) = &value {
        let wishes = R::unsupported(value);
        found.unsupported = wishes.iter().map(ToString::to_string).collect();
    }
    (found, value)
}

/// The report on a DNS name, and its addresses as one endpoint.
pub(super) fn dns(view: &View, name: &DnsName) -> (ResourceReport, Option<Arc<Endpoints>>) {
    let mut found = ResourceReport::new(&name.to_string(), "REQUESTED");
    let Some(seen) = view.look_up(name) else {
        return (found, None);
    };
    found.note = seen.ambient.map(|error| error.reason.to_string());
    match seen.value {
        Ok(endpoints) => {
            found.state = "RESOLVED";
            (found, Some(endpoints))
        }
        Err(error) => {
            found.state = "FAILED";
            found.error = Some(error.reason.to_string());
            (found, None)
        }
    }
}

impl ResourceReport {
    /// A report with a name and a state, and no other field set.
    pub(super) fn new(name: &str, state: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            state,
            version: None,
            refused_version: None,
            error: None,
            note: None,
            unsupported: Vec::new(),
        }
    }
}

fn refused(entry: &CacheEntry) -> Option<String> {
    let failure = entry.failure()?;
    (!failure.version.is_empty()).then(|| failure.version.to_string())
}

/// The name that CSDS has for the state.
fn state(state: ResourceStatus) -> &'static str {
    match state {
        ResourceStatus::Acked => "ACKED",
        ResourceStatus::DoesNotExist => "DOES_NOT_EXIST",
        ResourceStatus::Nacked => "NACKED",
        ResourceStatus::ReceivedError => "RECEIVED_ERROR",
        ResourceStatus::Requested => "REQUESTED",
        ResourceStatus::TimedOut => "TIMEOUT",
    }
}
