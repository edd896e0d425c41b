//! The names that a client asks for, followed through its requests.
//!
//! A delta request has only the changes, so the full set has to be kept somewhere.

use std::collections::{BTreeMap, BTreeSet};

use crowfly_xds::Request;

/// The names that a client asks for on one stream, by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskedNames(BTreeMap<String, BTreeSet<String>>);

impl AskedNames {
    /// Applies a request, and returns the names of its type after it.
    pub(crate) fn follow(&mut self, request: &Request) -> &BTreeSet<String> {
        match request {
            Request::Delta(request) => {
                let names = self.0.entry(request.type_url.clone()).or_default();
                for name in &request.resource_names_unsubscribe {
                    names.remove(name);
                }
                names.extend(request.resource_names_subscribe.iter().cloned());
                names
            }
            Request::Sotw(request) => {
                let names = self.0.entry(request.type_url.clone()).or_default();
                *names = request.resource_names.iter().cloned().collect();
                names
            }
        }
    }

    /// The names of a type; `None` if there was no request for it.
    pub(crate) fn of_type(&self, type_url: &str) -> Option<&BTreeSet<String>> {
        self.0.get(type_url)
    }
}
