//! A [`ResourceType`] as a value, so that one stream and one cache can hold many types.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crowfly_model::{Decoded, Features, ResourceType, names};

/// A parsed resource of any type.
pub type Erased = Arc<dyn Any + Send + Sync>;

/// A [`ResourceType`] as a value.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The full type URL.
    pub type_url: &'static str,
    /// What a message calls it.
    pub noun: &'static str,
    /// See [`ResourceType::ALL_IN_SOTW`].
    pub all_in_sotw: bool,
    decode: fn(&[u8], &Features) -> Decoded<Erased>,
    equal: fn(&Erased, &Erased) -> bool,
}

impl Kind {
    /// The value for type `R`.
    pub const fn of<R: ResourceType>() -> Self {
        Self {
            type_url: R::TYPE_URL,
            noun: R::NOUN,
            all_in_sotw: R::ALL_IN_SOTW,
            decode: decode::<R>,
            equal: equal::<R>,
        }
    }

    /// The key of the resource of this type named `name`.
    pub fn key(&self, name: &Arc<str>) -> Key {
        Key {
            type_url: self.type_url,
            name: Arc::clone(name),
        }
    }

    pub(crate) fn decode(&self, bytes: &[u8], features: &Features) -> Decoded<Erased> {
        (self.decode)(bytes, features)
    }

    pub(crate) fn equal(&self, a: &Erased, b: &Erased) -> bool {
        (self.equal)(a, b)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noun)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.type_url == other.type_url
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.type_url.cmp(other.type_url)
    }
}

/// Which resource: its type and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The full type URL.
    pub type_url: &'static str,
    /// The name within that type.
    pub name: Arc<str>,
}

impl Key {
    /// The key of the resource of type `R` named `name`, in whatever spelling (gRFC A47).
    pub fn of<R: ResourceType>(name: &str) -> Self {
        Self {
            type_url: R::TYPE_URL,
            name: canonical(name),
        }
    }
}

/// The name as it is looked up: xdstp names may come with their parameters in any order. A malformed
/// one stays as it is, and is refused where it is watched.
pub(crate) fn canonical(name: &str) -> Arc<str> {
    names::canonical(name).map_or_else(|_| name.into(), |name| (&*name).into())
}

fn decode<R: ResourceType>(bytes: &[u8], features: &Features) -> Decoded<Erased> {
    let Decoded { name, value } = R::parse(bytes, features);
    Decoded {
        name,
        value: value.map(|parsed| Arc::new(parsed) as Erased),
    }
}

fn equal<R: ResourceType>(a: &Erased, b: &Erased) -> bool {
    match (a.downcast_ref::<R::Parsed>(), b.downcast_ref::<R::Parsed>()) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}
