//! The conditions of a view on its clients: id, cluster, locality, metadata and kind.
//!
//! Conditions can also be compared, because a view is an error if an earlier one takes all of its
//! clients.

use std::collections::BTreeMap;
use std::fmt;

use crowfly_model::grpc::SafeRegex;
use envoy_types::pb::envoy::config::core::v3::Node;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::metadata::Wanted;
use crate::client_kind::Family;
use crate::service::pattern::{TextIs, TextPattern};

/// The conditions of a view. A client must meet all of them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "conditions on clients, such as {id: {prefix: \"canary-\"}}"
)]
pub(crate) struct NodeMatch {
    #[serde(default)]
    id: Option<OneOf<Pattern>>,
    #[serde(default)]
    cluster: Option<OneOf<Pattern>>,
    #[serde(default)]
    locality: Option<Place>,
    #[serde(default)]
    metadata: BTreeMap<String, Wanted>,
    #[serde(default)]
    client: Option<OneOf<Family>>,
}

/// A region, a zone and a sub-zone, of which those that are given count.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "a locality, such as {region: eu, zone: a}"
)]
struct Place {
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    sub_zone: Option<String>,
}

impl NodeMatch {
    /// The reason why no client can meet the conditions, or why all can, with its field.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        const EMPTY: &str = "expected at least one entry, got none: no client could match";
        let is_empty = |of: &Option<OneOf<Pattern>>| of.as_ref().is_some_and(OneOf::is_empty);
        if *self == Self::default() {
            let message = "expected at least one of id, cluster, locality, metadata, client; \
                what is for all clients belongs into `services`";
            return Some(("", message));
        }
        if is_empty(&self.id) {
            return Some(("id", EMPTY));
        }
        if is_empty(&self.cluster) {
            return Some(("cluster", EMPTY));
        }
        if self.client.as_ref().is_some_and(OneOf::is_empty) {
            return Some(("client", EMPTY));
        }
        if self.locality == Some(Place::default()) {
            let message = "expected at least one of region, zone, sub_zone";
            return Some(("locality", message));
        }
        None
    }

    /// True if clients of this family can meet the conditions.
    pub(crate) fn admits(&self, family: Family) -> bool {
        let wanted = self.client.as_ref();
        wanted.is_none_or(|wanted| wanted.0.contains(&family))
    }

    /// True if a client meets all conditions.
    pub(crate) fn matches(&self, node: &Node) -> bool {
        let texts = [(&self.id, &node.id), (&self.cluster, &node.cluster)];
        let meets = |(wanted, text): (&Option<OneOf<Pattern>>, &String)| {
            let one_of = |wanted: &OneOf<Pattern>| wanted.0.iter().any(|of| of.matches(text));
            wanted.as_ref().is_none_or(one_of)
        };
        texts.into_iter().all(meets)
            && self.locality.as_ref().is_none_or(|of| of.matches(node))
            && self.client.as_ref().is_none_or(|wanted| {
                Family::of(node).is_some_and(|family| wanted.0.contains(&family))
            })
            && self.metadata.iter().all(|(key, wanted)| {
                let fields = node.metadata.as_ref().map(|of| &of.fields);
                let value = fields.and_then(|fields| fields.get(key));
                value.is_some_and(|value| wanted.matches(value))
            })
    }

    /// True if every client that meets the conditions of `other` meets these. It may be false for conditions whose
    /// relation is hard to see, such as two regular expressions.
    pub(super) fn covers(&self, other: &Self) -> bool {
        covers_texts(self.id.as_ref(), other.id.as_ref())
            && covers_texts(self.cluster.as_ref(), other.cluster.as_ref())
            && self.client.as_ref().is_none_or(|own| {
                let has = |family| own.0.contains(family);
                other.client.as_ref().is_some_and(|of| of.0.iter().all(has))
            })
            && self.locality.as_ref().is_none_or(|own| {
                let other = other.locality.as_ref();
                other.is_some_and(|other| own.covers(other))
            })
            && self.metadata.iter().all(|(key, wanted)| {
                let other = other.metadata.get(key);
                other.is_some_and(|other| wanted.covers(other))
            })
    }
}

impl Place {
    fn matches(&self, node: &Node) -> bool {
        let empty = String::new();
        let locality = node.locality.as_ref();
        let [region, zone, sub_zone] =
            locality.map_or([&empty; 3], |of| [&of.region, &of.zone, &of.sub_zone]);
        let is = |wanted: &Option<String>, text: &String| wanted.as_ref().is_none_or(|w| w == text);
        is(&self.region, region) && is(&self.zone, zone) && is(&self.sub_zone, sub_zone)
    }

    fn covers(&self, other: &Self) -> bool {
        let is = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        is(&self.region, &other.region)
            && is(&self.zone, &other.zone)
            && is(&self.sub_zone, &other.sub_zone)
    }
}

fn covers_texts(own: Option<&OneOf<Pattern>>, other: Option<&OneOf<Pattern>>) -> bool {
    let Some(own) = own else { return true };
    other.is_some_and(|other| {
        let is_covered = |of: &Pattern| own.0.iter().any(|pattern| pattern.covers(of));
        other.0.iter().all(is_covered)
    })
}

/// A pattern for an id or the name of a cluster.
#[derive(Clone, Debug)]
struct Pattern {
    written: TextPattern,
    regex: Option<SafeRegex>,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        if let Some(regex) = &self.regex {
            return regex.matches(text.as_bytes());
        }
        let lower = |text: &str| text.to_lowercase();
        if self.written.ignore_case {
            return is_like(&self.written.is, &lower(text), lower);
        }
        is_like(&self.written.is, text, str::to_owned)
    }

    /// True if every text of the pattern `other` is one of this pattern, as far as that is easy to see.
    fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        if other.written.ignore_case {
            return false;
        }
        match (&self.written.is, &other.written.is) {
            (_, TextIs::Exactly(text)) => self.matches(text),
            (TextIs::StartingWith(_) | TextIs::Containing(_), TextIs::StartingWith(text))
            | (TextIs::EndingWith(_) | TextIs::Containing(_), TextIs::EndingWith(text))
            | (TextIs::Containing(_), TextIs::Containing(text)) => self.matches(text),
            _ => false,
        }
    }
}

fn is_like(is: &TextIs, text: &str, prepared: impl Fn(&str) -> String) -> bool {
    match is {
        TextIs::Containing(part) => text.contains(&prepared(part)),
        TextIs::Exactly(whole) => text == prepared(whole),
        TextIs::StartingWith(start) => text.starts_with(&prepared(start)),
        TextIs::EndingWith(end) => text.ends_with(&prepared(end)),
        // It was compiled, so it is not asked for here.
        TextIs::Like(_) => false,
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = TextPattern::deserialize(deserializer)?;
        let regex = match &written.is {
            TextIs::Like(regex) => Some(regex.0.parse().map_err(D::Error::custom)?),
            _ => None,
        };
        Ok(Self { written, regex })
    }
}

/// One value, or a list of values of which one must do.
#[derive(Clone, Debug, PartialEq)]
struct OneOf<T>(Vec<T>);

impl<T> OneOf<T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOfVisitor(std::marker::PhantomData))
    }
}

struct OneOfVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOfVisitor<T> {
    type Value = OneOf<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value, or a list of values")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OneOf<T>, E> {
        let text: StrDeserializer<'_, E> = text.into_deserializer();
        T::deserialize(text).map(|value| OneOf(vec![value]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOf<T>, A::Error> {
        let value = T::deserialize(MapAccessDeserializer::new(map))?;
        Ok(OneOf(vec![value]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOf<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOf)
    }
}

#[cfg(test)]
mod tests;
