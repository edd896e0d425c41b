//! The metadata that a view asks for. Of a mapping, only the keys that the view writes count,
//! because clients may have more metadata than the view is about.

use std::collections::BTreeMap;
use std::fmt;

use envoy_types::pb::google::protobuf::{Value, value::Kind};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// A value of metadata. Of a mapping, the keys that are written here count.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    Bool(bool),
    Number(f64),
    Text(String),
    Fields(BTreeMap<String, Self>),
}

impl Wanted {
    /// True if a client has this value.
    pub(super) fn matches(&self, value: &Value) -> bool {
        match (self, &value.kind) {
            (Self::Bool(wanted), Some(Kind::BoolValue(value))) => wanted == value,
            (Self::Number(wanted), Some(Kind::NumberValue(value))) => wanted == value,
            (Self::Text(wanted), Some(Kind::StringValue(value))) => wanted == value,
            (Self::Fields(wanted), Some(Kind::StructValue(value))) => {
                wanted.iter().all(|(key, wanted)| {
                    let value = value.fields.get(key);
                    value.is_some_and(|value| wanted.matches(value))
                })
            }
            _ => false,
        }
    }

    /// True if every value that `other` asks for is one that this asks for.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fields(own), Self::Fields(other)) => own.iter().all(|(key, own)| {
                let other = other.get(key);
                other.is_some_and(|other| own.covers(other))
            }),
            _ => self == other,
        }
    }
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WantedVisitor)
    }
}

struct WantedVisitor;

impl<'de> Visitor<'de> for WantedVisitor {
    type Value = Wanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true, false or a mapping")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Wanted, E> {
        Ok(Wanted::Bool(value))
    }

    // Metadata has no other numbers, so precision is lost on both sides alike.
    #[expect(clippy::cast_precision_loss, reason = "metadata has no other numbers")]
    fn visit_i64<E: Error>(self, value: i64) -> Result<Wanted, E> {
        Ok(Wanted::Number(value as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "metadata has no other numbers")]
    fn visit_u64<E: Error>(self, value: u64) -> Result<Wanted, E> {
        Ok(Wanted::Number(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Wanted, E> {
        Ok(Wanted::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Wanted, E> {
        Ok(Wanted::Text(value.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wanted, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            fields.insert(key, value);
        }
        Ok(Wanted::Fields(fields))
    }
}
