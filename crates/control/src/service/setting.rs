//! A setting that a service has for all of its routes, and that a route can replace. It knows
//! `none` apart from absence, because a route without a value has that of its service.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{
    BoolDeserializer, F64Deserializer, I64Deserializer, MapAccessDeserializer,
    SeqAccessDeserializer, StrDeserializer, U64Deserializer, UnitDeserializer,
};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// The text that takes a setting of the service away from a route. `off` and `false` would not do,
/// because tools that read YAML 1.1 take one for the other.
const NONE: &str = "none";

/// A setting of a service or a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Setting<T> {
    /// The setting is not written. A route then has that of its service.
    #[default]
    Absent,
    /// The setting is `none`, which also takes away that of the service.
    None,
    /// The setting has a value.
    Some(T),
}

impl<T> Setting<T> {
    /// The value of a route with this setting, in a service with the setting `service`.
    pub(crate) fn or<'a>(&'a self, service: &'a Self) -> Option<&'a T> {
        match (self, service) {
            (Self::Some(value), _) | (Self::Absent, Self::Some(value)) => Some(value),
            _ => None,
        }
    }

    /// The value, if it is written here.
    pub(crate) fn value(&self) -> Option<&T> {
        self.or(&Self::None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Setting<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor(PhantomData))
    }
}

/// Gives every value but `none` to the reader of a `T`, which has the right words for its errors.
struct SettingVisitor<T>(PhantomData<T>);

macro_rules! forward {
    ($visit:ident, $deserializer:ident, $type:ty) => {
        fn $visit<E: Error>(self, value: $type) -> Result<Setting<T>, E> {
            let value: $deserializer<E> = value.into_deserializer();
            T::deserialize(value).map(Setting::Some)
        }
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for SettingVisitor<T> {
    type Value = Setting<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    forward!(visit_bool, BoolDeserializer, bool);
    forward!(visit_f64, F64Deserializer, f64);
    forward!(visit_i64, I64Deserializer, i64);
    forward!(visit_u64, U64Deserializer, u64);

    fn visit_unit<E: Error>(self) -> Result<Setting<T>, E> {
        let value: UnitDeserializer<E> = ().into_deserializer();
        T::deserialize(value).map(Setting::Some)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Setting<T>, E> {
        if text == NONE {
            return Ok(Setting::None);
        }
        let text: StrDeserializer<'_, E> = text.into_deserializer();
        T::deserialize(text).map(Setting::Some)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Setting::Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Setting<T>, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(seq)).map(Setting::Some)
    }
}
