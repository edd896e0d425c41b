//! The objects of an API server, and the log of their changes. The log is kept, because a watch may begin at an
//! older version and is told all changes since.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::Fault;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) version: u64,
    /// The objects by resource and name.
    objects: BTreeMap<(String, String), Value>,
    log: Vec<Change>,
    /// Versions before this one are forgotten.
    pub(super) oldest: u64,
    pub(super) faults: VecDeque<(String, Fault)>,
    pub(super) held: BTreeSet<String>,
    pub(super) token: Option<String>,
    pub(super) refuses_streams: bool,
    pub(super) says_gone_as_status: bool,
    pub(super) requests: Vec<String>,
    /// A watch of an earlier generation ends.
    pub(super) generation: u64,
}

#[derive(Debug)]
struct Change {
    version: u64,
    resource: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl State {
    pub(super) fn apply(&mut self, mut object: Value) {
        let resource = match object["kind"].as_str() {
            Some("Service") => "services",
            Some("EndpointSlice") => "endpointslices",
            Some("Node") => "nodes",
            other => panic!("{other:?}"),
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = format!("{}/{}", text("namespace"), text("name"));
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let key = (resource.to_owned(), key);
        let before = self.objects.insert(key, object.clone());
        self.note(resource, before, Some(object));
    }

    pub(super) fn delete(&mut self, resource: &str, key: &str) {
        let key = (resource.to_owned(), key.to_owned());
        let before = self.objects.remove(&key).expect("the object is there");
        self.version += 1;
        self.note(resource, Some(before), None);
    }

    pub(super) fn lose(&mut self, resource: &str, key: &str) {
        let key = (resource.to_owned(), key.to_owned());
        self.objects.remove(&key).expect("the object is there");
        self.version += 1;
        self.oldest = self.version;
    }

    fn note(&mut self, resource: &str, before: Option<Value>, after: Option<Value>) {
        self.log.push(Change {
            version: self.version,
            resource: resource.to_owned(),
            before,
            after,
        });
    }

    /// The next fault of a resource, if it is of the wanted kind.
    pub(super) fn take_fault(
        &mut self,
        resource: &str,
        wanted: impl Fn(&Fault) -> bool,
    ) -> Option<Fault> {
        let mut faults = self.faults.iter();
        let at = faults.position(|(of, _)| of == resource)?;
        let is_wanted = self.faults.get(at).is_some_and(|(_, fault)| wanted(fault));
        is_wanted.then(|| self.faults.remove(at))?.map(|it| it.1)
    }

    /// The selected objects of a resource, by name.
    pub(super) fn list<'a>(
        &'a self,
        resource: &'a str,
        selector: &'a Selector,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let objects = self.objects.iter();
        objects
            .filter(move |((of, _), object)| of == resource && selector.takes(object))
            .map(|((_, key), object)| (key.as_str(), object))
    }

    /// The events of a resource after a version, each with its version.
    pub(super) fn events(
        &self,
        resource: &str,
        after: u64,
        selector: &Selector,
    ) -> Vec<(u64, Value)> {
        let changes = self.log.iter();
        let changes = changes.filter(|it| it.resource == resource && it.version > after);
        let events = changes.filter_map(|change| {
            let selected =
                |object: &Option<Value>| object.clone().filter(|object| selector.takes(object));
            let (kind, mut object) = match (selected(&change.before), selected(&change.after)) {
                (None, Some(after)) => ("ADDED", after),
                (Some(_), Some(after)) => ("MODIFIED", after),
                (Some(before), None) => ("DELETED", before),
                (None, None) => return None,
            };
            object["metadata"]["resourceVersion"] = change.version.to_string().into();
            Some((change.version, json!({ "type": kind, "object": object })))
        });
        events.collect()
    }
}

/// A selector of labels, and of the name.
#[derive(Debug, Default)]
pub(super) struct Selector {
    pub(super) labels: String,
    pub(super) fields: String,
}

impl Selector {
    fn takes(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let mut terms = self.labels.split(',').filter(|term| !term.is_empty());
        let are_labels = terms.all(|term| match term.strip_prefix('!') {
            Some(key) => labels.get(key).is_none(),
            None => {
                let (key, value) = term.split_once('=').expect("key=value");
                labels.get(key).and_then(Value::as_str) == Some(value)
            }
        });
        let name = self.fields.strip_prefix("metadata.name=");
        are_labels && name.is_none_or(|name| object["metadata"]["name"] == name)
    }
}
