//! The list of the channels of this process.
//!
//! The list is global, because the debug service shows all channels and nothing else in the process knows them all.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::channel::ChannelContext;

/// The channels, in the order in which they were made. The references are weak, so that the list keeps no
/// channel alive.
static CHANNELS: LazyLock<Mutex<Vec<Weak<ChannelContext>>>> = LazyLock::new(Mutex::default);

/// Lists a channel until it is dropped.
pub(crate) fn register(channel: &Arc<ChannelContext>) {
    push(&mut channels(), channel);
}

/// Every channel that is alive. A channel stays alive while the caller holds it.
pub(super) fn all() -> Vec<Arc<ChannelContext>> {
    channels().iter().filter_map(Weak::upgrade).collect()
}

fn channels() -> MutexGuard<'static, Vec<Weak<ChannelContext>>> {
    CHANNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds one to a list. Before the list grows, it drops all that are gone and reserves room for as many again as are
/// alive. So the cost of adding one does not depend on their number.
fn push<T>(list: &mut Vec<Weak<T>>, one: &Arc<T>) {
    if list.len() == list.capacity() {
        list.retain(|one| one.strong_count() > 0);
        list.reserve(list.len());
    }
    list.push(Arc::downgrade(one));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut list = Vec::new();
        let alive: Vec<_> = (0..10).map(Arc::new).collect();
        for one in &alive {
            push(&mut list, one);
            for _ in 0..100 {
                push(&mut list, &Arc::new(0));
            }
        }
        assert!(list.len() <= 40, "{}", list.len());
        let found = list.iter().filter_map(Weak::upgrade);
        assert!(found.eq(alive));
    }
}
