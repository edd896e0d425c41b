//! What changed from one snapshot to the next.
//!
//! Every stream that is served asks, and nearly all of them ask about the same two snapshots. So the
//! answer is kept with the newer one. A snapshot that was built from the one before knows it from the
//! start; otherwise the first who asks pays for one walk over all resources.

use std::sync::{Arc, OnceLock};

use super::TypeSnapshot;

/// The names that differ from one other snapshot: from that which this one was made from, or else
/// from the first that was asked about.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo(OnceLock<Changes>);

impl Memo {
    /// These names differ from the snapshot of that version.
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

/// The names of the resources that `new` has and `old` has not, or the reverse, or that are not the
/// same in both.
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
