//! The share of calls that a service sheds, so that its endpoints are not overloaded.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::text::Percent;

/// Categories of calls that fail in the client, each with its share of the calls that the categories
/// before it let through.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drops(pub(crate) Vec<(String, Percent)>);

impl<'de> Deserialize<'de> for Drops {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DropsVisitor)
    }
}

struct DropsVisitor;

impl<'de> Visitor<'de> for DropsVisitor {
    type Value = Drops;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("categories with their shares, such as {throttle: 10%}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Drops, A::Error> {
        let mut drops = Vec::new();
        while let Some((category, share)) = map.next_entry::<String, Percent>()? {
            if category.is_empty() {
                let message = "expected the name of a category, got an empty string";
                return Err(A::Error::custom(message));
            }
            drops.push((category, share));
        }
        if drops.is_empty() {
            return Err(A::Error::custom("expected at least one category, got none"));
        }
        Ok(Drops(drops))
    }
}
