//! The size of what a prefix holds.
//!
//! A listing that is too large is refused. The size is also kept during a watch, because a watch can exceed the
//! same limits with one key after another.

use std::collections::HashMap;

use crate::etcd::options::Limits;

/// The keys of a prefix that were told, with the length of each and its value.
#[derive(Debug, Default)]
pub(super) struct Holding {
    sizes: HashMap<Box<[u8]>, usize>,
    bytes: usize,
}

impl Holding {
    /// Takes note of a key that has this value now.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        let size = key.len() + value.len();
        let before = self.sizes.insert(key.into(), size);
        self.bytes = self.bytes - before.unwrap_or_default() + size;
    }

    /// Takes note of a key that is gone.
    pub(super) fn delete(&mut self, key: &[u8]) {
        self.bytes -= self.sizes.remove(key).unwrap_or_default();
    }

    /// The limit that is exceeded, in words.
    pub(super) fn excess(&self, limits: &Limits) -> Option<String> {
        let Limits { keys, bytes, .. } = limits;
        if self.sizes.len() > *keys {
            return Some(format!("more than {keys} keys"));
        }
        (self.bytes > *bytes).then(|| format!("keys and values of more than {bytes} bytes"))
    }
}
