//! The resources of one type, by name.
//!
//! A snapshot is never edited, so the next one starts as a copy. Copying ten thousand entries would
//! take longer than changing one of them. So entries are kept in runs that copies share: a copy is
//! a list of runs, and a change copies one run.

use std::sync::Arc;

use super::SnapshotResource;

/// The largest number of entries in a run. With ten thousand entries there are about as many runs
/// as entries in each.
const RUN: usize = 128;

type Entry = (Arc<str>, Arc<SnapshotResource>);

/// The resources of one type, in the order of their names. A clone shares its entries with the
/// original.
///
/// ```
/// use crowfly_xds::Snapshot;
/// use envoy_types::pb::google::protobuf::Any;
///
/// let mut builder = Snapshot::builder();
/// for name in ["b", "a"] {
///     builder.set(name, Any { type_url: "type.googleapis.com/x.Y".into(), value: vec![1] });
/// }
/// let snapshot = builder.build();
/// let resources = snapshot.of("type.googleapis.com/x.Y").unwrap().resources();
/// assert!(resources.keys().map(AsRef::as_ref).eq(["a", "b"]));
/// assert_eq!(resources.get("a"), resources.get("b"), "the content is the same");
/// ```
#[derive(Clone, Debug, Default)]
pub struct NamedResources {
    /// Runs of entries, none of which is empty.
    runs: Vec<Arc<Vec<Entry>>>,
    len: usize,
}

impl NamedResources {
    /// The number of resources.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no resource.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The resource of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<SnapshotResource>> {
        self.get_key_value(name).map(|(_, resource)| resource)
    }

    /// The resource of a name, with the name that snapshots share.
    pub fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &Arc<SnapshotResource>)> {
        let (run, at) = self.find(name).ok()?;
        let (name, resource) = &self.runs[run][at];
        Some((name, resource))
    }

    /// True if there is a resource of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Every name and its resource, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<SnapshotResource>)> {
        let entries = self.runs.iter().flat_map(|run| run.iter());
        entries.map(|(name, resource)| (name, resource))
    }

    /// Every name, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }

    /// The first resource whose name comes after `name`, for a walk that is taken up again later.
    pub fn next_after(&self, name: &str) -> Option<(&Arc<str>, &Arc<SnapshotResource>)> {
        let (run, at) = match self.find(name) {
            Ok((run, at)) => (run, at + 1),
            Err(place) => place,
        };
        let here = self.runs.get(run).and_then(|run| run.get(at));
        let entry = here.or_else(|| self.runs.get(run + 1)?.first());
        entry.map(|(name, resource)| (name, resource))
    }

    /// Adds a resource, and returns the one of that name that it replaces.
    pub(super) fn insert(
        &mut self,
        name: Arc<str>,
        resource: Arc<SnapshotResource>,
    ) -> Option<Arc<SnapshotResource>> {
        match self.find(&name) {
            Ok((run, at)) => {
                let run = Arc::make_mut(&mut self.runs[run]);
                Some(std::mem::replace(&mut run[at].1, resource))
            }
            Err((run, at)) => {
                self.insert_at(run, at, (name, resource));
                None
            }
        }
    }

    /// Removes a resource, and returns it.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<SnapshotResource>> {
        let (run, at) = self.find(name).ok()?;
        let (_, resource) = Arc::make_mut(&mut self.runs[run]).remove(at);
        if self.runs[run].is_empty() {
            self.runs.remove(run);
        }
        self.len -= 1;
        Some(resource)
    }

    /// The place of a name, or the one where it belongs: which run, and where in it.
    fn find(&self, name: &str) -> Result<(usize, usize), (usize, usize)> {
        let later = self.runs.partition_point(|run| &*run[0].0 <= name);
        let run = later.saturating_sub(1);
        let entries = self.runs.get(run).map_or(&[][..], |run| run.as_slice());
        let found = entries.binary_search_by(|(other, _)| (**other).cmp(name));
        found.map(|at| (run, at)).map_err(|at| (run, at))
    }

    fn insert_at(&mut self, run: usize, at: usize, entry: Entry) {
        self.len += 1;
        let Some(entries) = self.runs.get_mut(run).map(Arc::make_mut) else {
            self.runs.push(Arc::new(vec![entry]));
            return;
        };
        entries.insert(at, entry);
        if entries.len() > RUN {
            // Names often come in order: then each run stays full.
            let middle = if at == RUN { RUN } else { RUN / 2 };
            let rest = entries.split_off(middle);
            self.runs.insert(run + 1, Arc::new(rest));
        }
    }
}

impl PartialEq for NamedResources {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<'a> IntoIterator for &'a NamedResources {
    type Item = (&'a Arc<str>, &'a Arc<SnapshotResource>);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use envoy_types::pb::google::protobuf::Any;
    use proptest::prelude::*;

    use super::*;

    fn resource(value: u8) -> Arc<SnapshotResource> {
        let any = Any {
            type_url: String::new(),
            value: vec![value],
        };
        Arc::new(SnapshotResource::new(any, false))
    }

    fn name(key: u16) -> Arc<str> {
        format!("{key:03}").into()
    }

    proptest! {
        /// A copy that was taken on the way stays as it was.
        #[test]
        fn it_is_a_sorted_map_whose_copies_stay(
            acts in prop::collection::vec((0..500u16, 0..5u8), 0..1_500),
            copy_at in 0..1_500usize,
        ) {
            let (mut resources, mut model) = (NamedResources::default(), BTreeMap::new());
            let mut copies = None;
            for (i, (key, value)) in acts.into_iter().enumerate() {
                if i == copy_at {
                    copies = Some((resources.clone(), model.clone()));
                }
                let key = name(key);
                if value == 0 {
                    prop_assert_eq!(resources.remove(&key), model.remove(&key));
                } else {
                    let before = model.insert(key.clone(), resource(value));
                    prop_assert_eq!(resources.insert(key, resource(value)), before);
                }
            }
            for (resources, model) in copies.into_iter().chain([(resources, model)]) {
                prop_assert_eq!(resources.len(), model.len());
                prop_assert!(resources.iter().eq(&model));
                prop_assert!(resources.runs.iter().all(|run| (1..=RUN).contains(&run.len())));
                for key in (0..500).map(name) {
                    prop_assert_eq!(resources.get(&key), model.get(&key));
                    let after = (std::ops::Bound::Excluded(&*key), std::ops::Bound::Unbounded);
                    let next = model.range::<str, _>(after).next();
                    prop_assert_eq!(resources.next_after(&key), next);
                }
            }
        }
    }

    #[test]
    fn names_in_order_fill_their_runs() {
        let mut resources = NamedResources::default();
        for key in 0..5 * RUN {
            resources.insert(format!("{key:05}").into(), resource(1));
        }
        assert_eq!(resources.runs.len(), 5);
    }

    #[test]
    fn a_change_copies_one_run() {
        let mut first = NamedResources::default();
        for key in 0..5 * RUN {
            first.insert(format!("{key:05}").into(), resource(1));
        }
        let mut second = first.clone();
        second.insert("00007".into(), resource(2));
        let same = first.runs.iter().zip(&second.runs);
        assert_eq!(same.filter(|(a, b)| Arc::ptr_eq(a, b)).count(), 4);
    }
}
