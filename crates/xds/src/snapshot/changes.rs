//! Finds the names that changed from one snapshot to the next.
//!
//! Every stream of a server needs these names, and nearly all need them for the same two snapshots.
//! So the list is kept with the newer snapshot. A snapshot that was built from the one before has
//! the list from the start. Otherwise the first caller walks over all resources once.

use std::sync::{Arc, OnceLock};

use super::TypeSnapshot;

/// The names that differ from one other snapshot. That is the snapshot that this one was built
/// from, or else the first one that a caller compared it with.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo(OnceLock<Changes>);

impl Memo {
    /// A memo that says that `names` differ from the snapshot of version `since`.
    pub(super) fn known(since: &Arc<str>, names: Arc<[Arc<str>]>) -> Self {
        let since = Some(Arc::clone(since));
        Self(OnceLock::from(Changes { since, names }))
    }
}

#[derive(Clone, Debug)]
struct Changes {
    since: Option<Arc<str>>,
    names: Arc<[Arc<str>]>,
}

/// The names of the resources that only one of `old` and `new` has, and of those that differ
/// between them.
pub(crate) fn changed_names(
    old: Option<&TypeSnapshot>,
    new: Option<&TypeSnapshot>,
) -> Arc<[Arc<str>]> {
    let since = old.map(|of| &of.version);
    if since == new.map(|of| &of.version) {
        return Arc::default();
    }
    let Some(new) = new else {
        return compare(old, None);
    };
    let changes = new.memo.0.get_or_init(|| Changes {
        since: since.cloned(),
        names: compare(old, Some(new)),
    });
    if changes.since.as_ref() == since {
        Arc::clone(&changes.names)
    } else {
        compare(old, Some(new))
    }
}

fn compare(old: Option<&TypeSnapshot>, new: Option<&TypeSnapshot>) -> Arc<[Arc<str>]> {
    let [mut old, mut new] = [old, new].map(|of| {
        let resources = of.map(|of| of.resources().iter());
        resources.into_iter().flatten().peekable()
    });
    let mut names = Vec::new();
    loop {
        let (before, after) = match (old.peek(), new.peek()) {
            (None, None) => return names.into(),
            (Some(_), None) => (old.next(), None),
            (None, Some(_)) => (None, new.next()),
            (Some((a, _)), Some((b, _))) => {
                let order = a.cmp(b);
                (
                    order.is_le().then(|| old.next()).flatten(),
                    order.is_ge().then(|| new.next()).flatten(),
                )
            }
        };
        let name = after.or(before).map(|(name, _)| name);
        let same = match (before, after) {
            (Some((_, a)), Some((_, b))) => Arc::ptr_eq(a, b) || a.version == b.version,
            _ => false,
        };
        names.extend(name.filter(|_| !same).cloned());
    }
}
