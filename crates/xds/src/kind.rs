//! A [`ResourceType`] as a value. One stream and one cache hold many types, so the Rust type is
//! erased there.

use std::any::{Any, TypeId, type_name};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crowfly_model::{ResourceType, Unsupported, names};

/// A parsed resource of any type.
pub type Erased = Arc<dyn Any + Send + Sync>;

/// A [`ResourceType`] as a value: a reference to the [`Traits`] of the type.
#[derive(Clone, Copy)]
pub struct Kind(&'static Traits);

/// The properties of a [`ResourceType`] that are needed at run time, where the Rust type is erased.
pub struct Traits {
    /// The full type URL.
    pub type_url: &'static str,
    /// The name of the type in messages: `listener`, `cluster`.
    pub noun: &'static str,
    /// See [`ResourceType::ALL_IN_SOTW`].
    pub all_in_sotw: bool,
    /// See [`ResourceType::KEEPS_BYTES`].
    pub keeps_bytes: bool,
    reading: fn() -> (TypeId, &'static str),
    equal: fn(&Erased, &Erased) -> bool,
    unsupported: fn(&Erased) -> Vec<Unsupported>,
}

impl Kind {
    /// The value for type `R`.
    pub const fn of<R: ResourceType>() -> Self {
        Self(
            const {
                &Traits {
                    type_url: R::TYPE_URL,
                    noun: R::NOUN,
                    all_in_sotw: R::ALL_IN_SOTW,
                    keeps_bytes: R::KEEPS_BYTES,
                    reading: || (TypeId::of::<R>(), type_name::<R>()),
                    equal: equal::<R>,
                    unsupported: unsupported::<R>,
                }
            },
        )
    }

    /// The key of the resource of this type named `name`.
    pub fn key(&self, name: &Arc<str>) -> Key {
        Key {
            kind: *self,
            name: Arc::clone(name),
        }
    }

    /// The name of the Rust type that parses these resources, for error messages.
    pub(crate) fn reading(&self) -> &'static str {
        let (_, name) = (self.0.reading)();
        name
    }

    pub(crate) fn equal(&self, a: &Erased, b: &Erased) -> bool {
        (self.0.equal)(a, b)
    }

    pub(crate) fn unsupported(&self, value: &Erased) -> Vec<Unsupported> {
        (self.0.unsupported)(value)
    }
}

impl Deref for Kind {
    type Target = Traits;

    fn deref(&self) -> &Traits {
        self.0
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.noun)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
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
        // The addresses may differ for one type, because the compiler may make several copies of
        // its constant.
        if std::ptr::eq(self.0, other.0) {
            return Ordering::Equal;
        }
        let reading = |kind: &Self| (kind.0.reading)().0;
        let by_url = self.type_url.cmp(other.type_url);
        by_url.then_with(|| reading(self).cmp(&reading(other)))
    }
}

/// The key of a resource: its type and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The type of the resource.
    pub kind: Kind,
    /// The name within that type.
    pub name: Arc<str>,
}

impl Key {
    /// The key of the resource of type `R` named `name`. Any spelling of an `xdstp://` name gives
    /// the same key (gRFC A47).
    pub fn of<R: ResourceType>(name: &str) -> Self {
        Self {
            kind: Kind::of::<R>(),
            name: canonical(name),
        }
    }
}

impl Hash for Key {
    /// Hashes the name alone, because few resources of different types share a name.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The canonical spelling of a name, because xdstp names may have their parameters in any order. A
/// malformed name stays as it is; watching it gives an error.
pub(crate) fn canonical(name: &str) -> Arc<str> {
    names::canonical(name).map_or_else(|_| name.into(), |name| (&*name).into())
}

fn equal<R: ResourceType>(a: &Erased, b: &Erased) -> bool {
    match (a.downcast_ref::<R::Parsed>(), b.downcast_ref::<R::Parsed>()) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn unsupported<R: ResourceType>(value: &Erased) -> Vec<Unsupported> {
    value
        .downcast_ref::<R::Parsed>()
        .map_or_else(Vec::new, R::unsupported)
}
