//! Brings Services and EndpointSlices together.
//!
//! The two kinds are listed and watched apart, so that either may come first. A service is told with
//! the backends that are known, and anew whenever they change. The first listing is told when both kinds
//! have listed, because a service without its slices would refuse connections that have a backend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_source::kubernetes::{Object, ObjectKey, Seen};
use crowfly_source::{Event, Table};
use k8s_openapi::api::{core, discovery};
use tracing::{error, info};

use super::notes::Notes;
use super::{ReadService, ReadSlice, Refusal, SharedNames, read_service, read_slice};
use crate::model::{Service, ServiceKind, ServiceName};
use crate::services::ServiceEvent;

/// The most objects of a kind that are kept: four times the frontends that there is room for, unless another size is
/// set. A server that makes up objects without an end must not fill the memory.
const MOST_OBJECTS: usize = 262_144;

/// The objects that were refused since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Services.
    pub services: u64,
    /// EndpointSlices.
    pub slices: u64,
}

/// Services and EndpointSlices in, services with backends out.
///
/// One change costs what it changes: slices are known by their service.
#[derive(Debug)]
pub struct Joiner {
    proxy_name: Option<Arc<str>>,
    services: Kind<ReadService>,
    slices: Kind<ReadSlice>,
    /// The slices of each service. They are in its namespace.
    slices_of: BTreeMap<ServiceName, BTreeSet<ObjectKey>>,
    /// The services that were told.
    told: BTreeMap<ServiceName, Arc<Service>>,
    /// The services to tell.
    changed: BTreeSet<ServiceName>,
    /// The state that was told.
    state: Told,
    names: SharedNames,
    notes: Notes,
    refused: Refused,
}

/// The objects of one kind.
#[derive(Debug)]
struct Kind<T> {
    objects: Table<ObjectKey, Arc<T>>,
    failure: Option<Arc<str>>,
    room: usize,
    /// True if it was said that there are too many.
    is_full: bool,
}

/// A reason to refuse an object.
enum Reject {
    Wrong(String),
    /// There is no room for it, and that was said.
    Full,
}

#[derive(Debug, PartialEq)]
enum Told {
    Nothing,
    Failed(Arc<str>),
    Synced,
}

impl Joiner {
    /// Nothing yet, for the services of one proxy; `None` is the cluster's default one.
    pub fn new(proxy_name: Option<Arc<str>>) -> Self {
        Self {
            proxy_name,
            services: Kind::default(),
            slices: Kind::default(),
            slices_of: BTreeMap::new(),
            told: BTreeMap::new(),
            changed: BTreeSet::new(),
            state: Told::Nothing,
            names: SharedNames::default(),
            notes: Notes::default(),
            refused: Refused::default(),
        }
    }

    /// Keeps at most `room` objects of each kind, and refuses others.
    #[must_use]
    pub fn with_room(mut self, room: usize) -> Self {
        self.services.room = room;
        self.slices.room = room;
        self
    }

    /// Takes a word about Services.
    pub fn see_service(&mut self, seen: Seen<core::v1::Service>) {
        let proxy_name = self.proxy_name.as_deref();
        let read = |object: &core::v1::Service| read_service(object, proxy_name);
        let changed = self.services.see(seen, read, |key, reject| {
            self.refused.services += 1;
            reject.say("Service", key);
        });
        for (key, before) in changed {
            let name = ServiceName::new(&key.namespace, &key.name);
            if let Some(now) = self.services.objects.get(&key) {
                let before = before.as_ref().map(|before| before.notes.as_slice());
                self.notes
                    .say(&name, &now.notes, before.unwrap_or_default());
            }
            self.changed.insert(name);
        }
    }

    /// Takes a word about EndpointSlices.
    pub fn see_slice(&mut self, seen: Seen<discovery::v1::EndpointSlice>) {
        let proxy_name = self.proxy_name.as_deref();
        let names = &mut self.names;
        let read = |object: &discovery::v1::EndpointSlice| read_slice(object, proxy_name, names);
        let changed = self.slices.see(seen, read, |key, reject| {
            self.refused.slices += 1;
            reject.say("EndpointSlice", key);
        });
        for (key, before) in changed {
            // A slice may change hands, since its service is a label.
            if let Some(before) = before {
                self.disown(&before.service, &key);
                self.changed.insert(before.service.clone());
            }
            if let Some(now) = self.slices.objects.get(&key) {
                let service = now.service.clone();
                let slices = self.slices_of.entry(service.clone()).or_default();
                slices.insert(key);
                self.changed.insert(service);
            }
        }
    }

    fn disown(&mut self, service: &ServiceName, slice: &ObjectKey) {
        if let Some(slices) = self.slices_of.get_mut(service) {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices_of.remove(service);
            }
        }
    }

    /// The events that follow from what was seen. They belong together.
    pub fn take(&mut self) -> Vec<ServiceEvent> {
        let has_synced = self.services.objects.has_synced() && self.slices.objects.has_synced();
        let failure = self.services.failure.clone();
        let failure = failure.or_else(|| self.slices.failure.clone());
        if !has_synced {
            return self.fail(failure);
        }
        let mut events = self.changes();
        match failure {
            // Before it fails, a source may have told something.
            Some(_) if self.state == Told::Nothing => {
                events = self.listing();
                events.extend(self.fail(failure));
            }
            Some(_) => events.extend(self.fail(failure)),
            None if self.state != Told::Synced => {
                self.state = Told::Synced;
                events = self.listing();
                info!("Kubernetes: {} services are known", self.told.len());
            }
            None => {}
        }
        events
    }

    fn fail(&mut self, failure: Option<Arc<str>>) -> Vec<ServiceEvent> {
        let Some(reason) = failure else {
            return Vec::new();
        };
        let state = Told::Failed(Arc::clone(&reason));
        if self.state == state {
            return Vec::new();
        }
        self.state = state;
        vec![Event::Failed(reason)]
    }

    /// Tells the changed services anew.
    fn changes(&mut self) -> Vec<ServiceEvent> {
        let mut events = Vec::new();
        for name in std::mem::take(&mut self.changed) {
            let joined = self.joined(&name);
            if joined.as_ref() == self.told.get(&name) {
                continue;
            }
            events.push(match joined {
                Some(service) => {
                    self.told.insert(name.clone(), Arc::clone(&service));
                    Event::Upsert(name, service)
                }
                None => {
                    self.told.remove(&name);
                    Event::Delete(name)
                }
            });
        }
        events
    }

    fn joined(&self, name: &ServiceName) -> Option<Arc<Service>> {
        let key = ObjectKey::new(&name.namespace, &name.name);
        let read = self.services.objects.get(&key)?;
        let mut service = read.service.clone();
        if matches!(service.kind, ServiceKind::ClusterIp(_)) {
            let slices = self.slices_of.get(name).into_iter().flatten();
            let slices = slices.filter_map(|slice| self.slices.objects.get(slice));
            let slices: Vec<_> = slices.collect();
            service.backends = match slices.as_slice() {
                // Most services have one slice, and need no copy of it.
                [only] => Arc::clone(&only.backends),
                all => all
                    .iter()
                    .flat_map(|it| it.backends.iter())
                    .cloned()
                    .collect(),
            };
        }
        Some(Arc::new(service))
    }

    fn listing(&self) -> Vec<ServiceEvent> {
        let told = self.told.iter();
        let told = told.map(|(name, service)| Event::Upsert(name.clone(), Arc::clone(service)));
        let begin = [Event::Init].into_iter();
        begin.chain(told).chain([Event::InitDone]).collect()
    }

    /// The number of objects that were refused.
    pub fn refused(&self) -> Refused {
        self.refused
    }
}

impl<T: Eq> Kind<T> {
    /// Takes a word about objects of this kind, and returns those that it changed, with their past.
    fn see<K>(
        &mut self,
        seen: Seen<K>,
        mut read: impl FnMut(&K) -> Result<Option<T>, Refusal>,
        mut refuse: impl FnMut(&ObjectKey, Reject),
    ) -> Vec<(ObjectKey, Option<Arc<T>>)> {
        let event = match seen {
            Seen::Resumed => {
                self.failure = None;
                return Vec::new();
            }
            Seen::Event(event) => event,
        };
        match &event {
            Event::InitDone => self.failure = None,
            Event::Failed(reason) => self.failure = Some(Arc::clone(reason)),
            _ => {}
        }
        let event = match event {
            Event::Upsert(key, object) => {
                let read = match object {
                    Object::Valid(object) => read(&object).map_err(|refusal| refusal.to_string()),
                    Object::Malformed(reason) => Err(reason.to_string()),
                };
                match read {
                    Ok(Some(_)) if self.has_no_room(&key) => {
                        refuse(&key, Reject::Full);
                        return Vec::new();
                    }
                    Ok(Some(read)) => Event::Upsert(key, Arc::new(read)),
                    Ok(None) => Event::Delete(key),
                    Err(reason) => {
                        refuse(&key, Reject::Wrong(reason));
                        // To mention the last good version keeps it through a listing.
                        match self.objects.get(&key).cloned() {
                            Some(known) => Event::Upsert(key, known),
                            None => return Vec::new(),
                        }
                    }
                }
            }
            Event::Init => Event::Init,
            Event::Delete(key) => Event::Delete(key),
            Event::InitDone => Event::InitDone,
            Event::Failed(reason) => Event::Failed(reason),
        };
        let replaced = self.objects.handle(event).into_iter();
        replaced.map(|it| (it.key, it.before)).collect()
    }

    /// True for an object that is one too many. It is said once, until there is room again.
    fn has_no_room(&mut self, key: &ObjectKey) -> bool {
        let is_full = self.objects.len() >= self.room;
        let is_refused = is_full && self.objects.get(key).is_none();
        if is_refused && !self.is_full {
            let room = self.room;
            error!(
                "Kubernetes: there are more than {room} objects of one kind: {key} and others are refused"
            );
        }
        self.is_full = is_full;
        is_refused
    }
}

impl Reject {
    fn say(self, kind: &str, key: &ObjectKey) {
        match self {
            Self::Wrong(reason) => {
                error!("{kind} {key} is refused: {reason}; its last good version stays");
            }
            Self::Full => {}
        }
    }
}

impl<T> Default for Kind<T> {
    fn default() -> Self {
        Self {
            objects: Table::default(),
            failure: None,
            room: MOST_OBJECTS,
            is_full: false,
        }
    }
}
