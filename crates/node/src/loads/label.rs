//! The names that connections are counted under: a cluster and a locality.
//!
//! The maps have the number of a label with each pair, because many pairs share its names. They have the names too,
//! because a service may be gone when the next agent starts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crowfly_names::LocalityId;
use tracing::warn;

use crate::maps::reports::{LabelId, MAX_LABEL};
use crate::model::ReportedAs;

/// A cluster and a locality in load reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// The cluster.
    pub cluster: ReportedAs,
    /// The locality of the backend.
    pub locality: LocalityId,
}

impl Label {
    /// The names as the maps keep them, each ended by a zero; `None` if they are too long or have a zero
    /// inside.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let parts = [
            &*self.cluster.cluster,
            self.cluster.eds_service.as_deref().unwrap_or_default(),
            self.locality.region(),
            self.locality.zone(),
            self.locality.sub_zone(),
        ];
        let mut bytes = Vec::new();
        for part in parts {
            if part.contains('\0') {
                return None;
            }
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(0);
        }
        (bytes.len() <= MAX_LABEL).then_some(bytes)
    }

    /// The label in a value of the map; `None` if no agent wrote it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.split(|byte| *byte == 0);
        let mut part = || std::str::from_utf8(parts.next()?).ok();
        let (cluster, eds_service) = (part()?, part()?);
        let (region, zone, sub_zone) = (part()?, part()?, part()?);
        Some(Self {
            cluster: ReportedAs {
                cluster: cluster.into(),
                eds_service: (!eds_service.is_empty()).then(|| eds_service.into()),
            },
            locality: LocalityId::new(region, zone, sub_zone),
        })
    }
}

/// Labels by number.
#[derive(Debug, Default)]
pub(super) struct Labels {
    ids: HashMap<Arc<Label>, LabelId>,
    labels: HashMap<LabelId, Arc<Label>>,
    /// The texts that the map is to keep and does not have yet, because it had no room.
    unstored: BTreeMap<LabelId, Vec<u8>>,
    last: u32,
}

impl Labels {
    /// Takes note of a number that stands for a label. The label may be lost, because long names are not stored and the
    /// map may have been full. Another label must not get its number all the same.
    pub(super) fn in_use(&mut self, id: LabelId) {
        self.last = self.last.max(id.0);
    }

    /// Takes note of a label that the map has.
    pub(super) fn found(&mut self, id: LabelId, label: Label) {
        self.in_use(id);
        let label = Arc::new(label);
        self.ids.insert(Arc::clone(&label), id);
        self.labels.insert(id, label);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    pub(super) fn get(&self, id: LabelId) -> Option<&Arc<Label>> {
        self.labels.get(&id)
    }

    pub(super) fn id(&self, label: &Label) -> Option<LabelId> {
        self.ids.get(label).copied()
    }

    /// True if a former agent has counted under a label that it could not store.
    pub(super) fn is_lost(&self, id: LabelId) -> bool {
        id != LabelId::default() && !self.labels.contains_key(&id)
    }

    /// Gives a label a number. The label is not stored yet.
    pub(super) fn add(&mut self, label: &Label) -> LabelId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = LabelId(self.last);
            if id == LabelId::default() || self.labels.contains_key(&id) {
                continue;
            }
            self.found(id, label.clone());
            if let Some(text) = label.to_bytes() {
                self.unstored.insert(id, text);
            } else {
                let cluster = &*label.cluster.cluster;
                warn!(
                    cluster,
                    "names over {MAX_LABEL} bytes in all are not stored: load that is not reported \
                     when the agent ends is lost if the service is gone when it starts again"
                );
            }
            return id;
        }
    }

    /// The text of a label that the map does not have yet; `None` if it has it, or if the names are too long.
    pub(super) fn unstored(&self, id: LabelId) -> Option<&[u8]> {
        self.unstored.get(&id).map(Vec::as_slice)
    }

    /// A label that is not stored yet.
    pub(super) fn first_unstored(&self) -> Option<LabelId> {
        self.unstored.keys().next().copied()
    }

    /// Takes note that the map has a label.
    pub(super) fn stored(&mut self, id: LabelId) {
        self.unstored.remove(&id);
    }

    /// Forgets the labels that are not in use, and returns their numbers.
    pub(super) fn retain(&mut self, is_used: impl Fn(LabelId) -> bool) -> Vec<LabelId> {
        let unused = self.labels.keys().copied().filter(|id| !is_used(*id));
        let unused: Vec<_> = unused.collect();
        for id in &unused {
            self.unstored.remove(id);
            if let Some(label) = self.labels.remove(id) {
                self.ids.remove(&label);
            }
        }
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(cluster: &str, eds_service: Option<&str>) -> Label {
        Label {
            cluster: ReportedAs {
                cluster: cluster.into(),
                eds_service: eds_service.map(Into::into),
            },
            locality: LocalityId::new("eu", "a", ""),
        }
    }

    #[test]
    fn labels_come_back() {
        for label in [label("shop/web:80", None), label("web", Some("web-eds"))] {
            let mut bytes = label.to_bytes().unwrap();
            bytes.resize(MAX_LABEL, 0);
            assert_eq!(Label::from_bytes(&bytes), Some(label));
        }
        assert_eq!(label(&"x".repeat(MAX_LABEL), None).to_bytes(), None);
        assert_eq!(label("a\0b", None).to_bytes(), None);
        assert_eq!(Label::from_bytes(b"\xff\0\0\0\0\0"), None);
    }

    /// N-72: a number of a label that is lost is not given to another one.
    #[test]
    fn a_number_in_use_is_not_given_again() {
        let mut labels = Labels::default();
        labels.found(LabelId(6), label("web", None));
        labels.in_use(LabelId(7));
        assert_eq!(labels.add(&label("other", None)), LabelId(8));
    }
}
