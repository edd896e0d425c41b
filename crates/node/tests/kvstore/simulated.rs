//! A mesh whose etcd is in memory, in simulated time, so that a test can run through many
//! histories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crowfly_node::kvstore::{Layout, LogLine, Mesh, Step};
use crowfly_node::services::ServiceEvent;
use crowfly_source::Event;
use crowfly_source::etcd::News;

pub(crate) struct Simulated {
    keys: BTreeMap<String, String>,
    mesh: Mesh,
    now: Instant,
    followed: BTreeSet<Bytes>,
    /// The changes while there is no connection, in order.
    missed: Option<Vec<(Bytes, News)>>,
    /// Prefixes that were never listed, because there was no connection.
    unlisted: BTreeSet<Bytes>,
    notes: Vec<LogLine>,
    events: Vec<ServiceEvent>,
}

impl Simulated {
    pub(crate) fn new(layout: Layout) -> Self {
        Self::with(layout, BTreeMap::new())
    }

    /// A mesh of an etcd that has these keys already.
    pub(crate) fn with(layout: Layout, keys: BTreeMap<String, String>) -> Self {
        let now = Instant::now();
        let (mesh, step) = Mesh::new(layout, now);
        let mut simulated = Self {
            keys,
            mesh,
            now,
            followed: BTreeSet::new(),
            missed: None,
            unlisted: BTreeSet::new(),
            notes: Vec::new(),
            events: Vec::new(),
        };
        simulated.perform(step);
        simulated
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        self.keys.insert(key.to_owned(), value.to_owned());
        self.tell(key, &Event::Upsert(bytes(key), bytes(value)));
    }

    pub(crate) fn delete(&mut self, key: &str) {
        if self.keys.remove(key).is_some() {
            self.tell(key, &Event::Delete(bytes(key)));
        }
    }

    pub(crate) fn fail(&mut self, reason: &str) {
        if self.missed.is_none() {
            self.missed = Some(Vec::new());
            let failed = News::Event(Event::Failed(reason.into()));
            let all = self
                .followed
                .iter()
                .map(|prefix| (prefix.clone(), failed.clone()));
            self.hear(all.collect());
        }
    }

    /// The connection is back. If all is listed anew, what happened meanwhile is not told.
    pub(crate) fn back(&mut self, is_relisted: bool) {
        let Some(missed) = self.missed.take() else {
            return;
        };
        for prefix in self.followed.clone() {
            if is_relisted || self.unlisted.contains(&prefix) {
                self.list(&prefix);
            } else {
                self.hear(vec![(prefix.clone(), News::Resumed)]);
                let missed = missed.iter().filter(|(of, _)| *of == prefix);
                self.hear(missed.cloned().collect());
            }
        }
        self.unlisted.clear();
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        if self
            .mesh
            .deadline()
            .is_some_and(|deadline| deadline <= self.now)
        {
            let step = self.mesh.tick(self.now);
            self.perform(step);
        }
    }

    /// The lines for the log since the last time.
    pub(crate) fn take(&mut self) -> (Vec<LogLine>, Vec<ServiceEvent>) {
        (
            std::mem::take(&mut self.notes),
            std::mem::take(&mut self.events),
        )
    }

    pub(crate) fn keys(&self) -> BTreeMap<String, String> {
        self.keys.clone()
    }

    /// The keys of services that a reader who comes later does not take: no JSON, another cluster's id, or no
    /// configuration of the cluster.
    pub(crate) fn refused(&self) -> Vec<String> {
        let number = |value: &str, field: &str| {
            let value: serde_json::Value = serde_json::from_str(value).ok()?;
            value[field].as_u64()
        };
        let is_refused = |(key, value): &(&String, &String)| {
            let Some(rest) = key.strip_prefix("cilium/state/services/v1/") else {
                return false;
            };
            let cluster = rest.split('/').next().unwrap();
            let config = self.keys.get(&format!("cilium/cluster-config/{cluster}"));
            let id = config.and_then(|config| number(config, "id"));
            id.is_none() || id != number(value, "clusterID")
        };
        let refused = self.keys.iter().filter(is_refused);
        refused.map(|(key, _)| key.clone()).collect()
    }

    fn tell(&mut self, key: &str, event: &Event<Bytes, Bytes>) {
        let prefixes = self.followed.iter();
        let prefixes = prefixes.filter(|prefix| key.as_bytes().starts_with(prefix));
        let news = prefixes.map(|prefix| (prefix.clone(), News::Event(event.clone())));
        let news: Vec<_> = news.collect();
        match &mut self.missed {
            Some(missed) => missed.extend(news),
            None => self.hear(news),
        }
    }

    fn hear(&mut self, news: Vec<(Bytes, News)>) {
        let step = self.mesh.handle(news, self.now);
        self.perform(step);
    }

    fn perform(&mut self, step: Step) {
        self.notes.extend(step.notes);
        self.events.extend(step.events);
        for prefix in step.unfollow {
            self.followed.remove(&prefix);
        }
        for prefix in step.follow {
            self.followed.insert(prefix.clone());
            if self.missed.is_none() {
                self.list(&prefix);
            } else {
                self.unlisted.insert(prefix);
            }
        }
    }

    fn list(&mut self, prefix: &Bytes) {
        if !self.followed.contains(prefix) {
            return;
        }
        let keys = self.keys.iter();
        let keys = keys.filter(|(key, _)| key.as_bytes().starts_with(prefix));
        let listed = keys.map(|(key, value)| Event::Upsert(bytes(key), bytes(value)));
        let listed = [Event::Init].into_iter().chain(listed);
        let listed = listed.chain([Event::InitDone]);
        let news = listed.map(|event| (prefix.clone(), News::Event(event)));
        self.hear(news.collect());
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
