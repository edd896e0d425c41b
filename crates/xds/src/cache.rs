//! What is known of each watched resource.
//!
//! An entry keeps the last good value through every kind of trouble, apart from what gRFC A27 calls
//! deletion. Trouble that leaves a good value standing is *ambient* (gRFC A88): worth telling, no
//! reason to stop.

use std::collections::HashMap;
use std::sync::Arc;

use crowfly_model::ResourceType;

use crate::error::ResourceError;
use crate::kind::{Erased, Key, Kind};

/// The resources one reader watches, each with what is known of it.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    entries: HashMap<Key, Entry>,
}

impl Cache {
    /// What is known of a resource; `None` if it is not watched.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The value of the resource of type `R` named `name`, or why there is none. `None` while
    /// neither is known.
    pub fn read<R: ResourceType>(
        &self,
        name: &str,
    ) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        self.entry(&Key::of::<R>(name))?.read::<R>()
    }

    /// Replaces what is known of a resource.
    pub fn put(&mut self, key: Key, entry: Entry) {
        self.entries.insert(key, entry);
    }

    /// Forgets a resource.
    pub fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// Every entry, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    pub(crate) fn entry_mut(&mut self, key: &Key) -> &mut Entry {
        self.entries.entry(key.clone()).or_default()
    }

    pub(crate) fn has_value(&self, key: &Key) -> bool {
        self.entry(key).is_some_and(Entry::has_value)
    }
}

/// What is known of one resource.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    data: Option<Result<Erased, ResourceError>>,
    ambient: Option<ResourceError>,
    version: Arc<str>,
}

impl Entry {
    /// The value as type `R`, or why there is none; `None` while it is only requested.
    pub fn read<R: ResourceType>(&self) -> Option<Result<Arc<R::Parsed>, ResourceError>> {
        match self.data.as_ref()? {
            Ok(erased) => Arc::clone(erased).downcast().ok().map(Ok),
            Err(error) => Some(Err(error.clone())),
        }
    }

    /// Trouble that leaves the value standing.
    pub fn ambient(&self) -> Option<&ResourceError> {
        self.ambient.as_ref()
    }

    /// The version of the value, as the server called it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether there is a good value.
    pub fn has_value(&self) -> bool {
        matches!(self.data, Some(Ok(_)))
    }

    /// Whether there is a value, or a reason why there is none.
    pub fn is_known(&self) -> bool {
        self.data.is_some()
    }

    /// A valid resource came. An equal one keeps the object already held.
    pub(crate) fn accept(&mut self, kind: Kind, value: Erased, version: &Arc<str>) -> Changed {
        self.version = Arc::clone(version);
        let had_trouble = self.ambient.take().is_some();
        if let Some(Ok(held)) = &self.data
            && kind.equal(held, &value)
        {
            return if had_trouble {
                Changed::Ambient
            } else {
                Changed::Nothing
            };
        }
        self.data = Some(Ok(value));
        Changed::Data
    }

    /// Something went wrong that does not speak about the value itself.
    pub(crate) fn trouble(&mut self, error: ResourceError) -> Changed {
        if self.has_value() {
            if self.ambient.as_ref() == Some(&error) {
                return Changed::Nothing;
            }
            self.ambient = Some(error);
            return Changed::Ambient;
        }
        self.fail(error)
    }

    /// The value, if any, is no longer valid.
    pub(crate) fn fail(&mut self, error: ResourceError) -> Changed {
        self.ambient = None;
        if matches!(&self.data, Some(Err(held)) if *held == error) {
            return Changed::Nothing;
        }
        self.data = Some(Err(error));
        Changed::Data
    }
}

/// What an event did to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Only the ambient error: it came, changed or went.
    Ambient,
    /// The value, or the reason why there is none.
    Data,
    /// Nothing that a watcher can see.
    Nothing,
}
