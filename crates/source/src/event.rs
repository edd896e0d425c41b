//! The events that every source emits.
//!
//! All sources share them, so that a reader need not know which sources are in use.

use std::sync::Arc;

/// An event of a source about its keyed values.
///
/// A listing has events of its own, because a source that was cut off cannot know what was deleted
/// meanwhile. The source lists what there is, and the reader concludes what is gone.
///
/// ```
/// use crowfly_source::Event;
///
/// let listing = [Event::Init, Event::Upsert("a", 1), Event::Upsert("b", 2), Event::InitDone];
/// let doubled = listing.map(|event| event.map(|value| 2 * value));
/// assert_eq!(doubled[1], Event::Upsert("a", 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K, V> {
    /// A listing of everything begins. A listing that was under way is void.
    Init,
    /// This key has this value, during a listing or later.
    Upsert(K, V),
    /// This key has no value any more.
    Delete(K),
    /// The listing is complete: a key that it did not mention has no value.
    InitDone,
    /// The source is cut off, for this reason. What it said last stays true.
    Failed(Arc<str>),
}

impl<K, V> Event<K, V> {
    /// The event with its value, if it has one, turned into another.
    pub fn map<W>(self, turn: impl FnOnce(V) -> W) -> Event<K, W> {
        match self {
            Self::Init => Event::Init,
            Self::Upsert(key, value) => Event::Upsert(key, turn(value)),
            Self::Delete(key) => Event::Delete(key),
            Self::InitDone => Event::InitDone,
            Self::Failed(reason) => Event::Failed(reason),
        }
    }
}
