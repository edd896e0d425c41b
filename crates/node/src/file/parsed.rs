//! A document, whose services are read while it is parsed.
//!
//! Only the tree of one service exists at a time. The trees of ten thousand services would take more memory than all
//! else in the agent.

use std::fmt;
use std::marker::PhantomData;

use crowfly_source::yaml::{Key, Node, Placed, Position, Problem};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::entry::ServiceEntry;
use crate::model::Service;

/// A document.
pub(super) type Document = Placed<Shaped<IgnoredAny, Fields>>;

/// The value of `services`.
pub(super) type Services = Placed<Shaped<Vec<Entry>, IgnoredAny>>;

/// A value by its shape. A wrong shape is a mistake that is told later, with the path of the value.
pub(super) enum Shaped<L, M> {
    /// Nothing, or `null`.
    Nothing,
    List(L),
    Mapping(M),
    /// A string, a number or a boolean.
    Scalar,
}

/// The fields of a document, in the order of the file.
pub(super) struct Fields(pub(super) Vec<Field>);

pub(super) enum Field {
    Services(Services),
    Setting(Key, Node),
}

/// An entry of the list of services.
pub(super) struct Entry {
    /// The service; `None` if it cannot be read.
    pub(super) service: Option<Service>,
    /// Its mistakes. Their paths begin in the entry.
    pub(super) problems: Vec<Problem>,
    name_at: Position,
    addresses_at: Vec<Position>,
}

impl Entry {
    fn read(node: &Node) -> Self {
        let mut entry = Self {
            service: None,
            problems: Vec::new(),
            name_at: node.position_of("name"),
            addresses_at: Vec::new(),
        };
        let read: ServiceEntry = match node.read("") {
            Ok(read) => read,
            Err(problem) => {
                entry.problems.push(problem);
                return entry;
            }
        };
        read.validate(&mut |field, message| {
            entry.problems.push(Problem {
                at: Some(node.position_of(field)),
                path: field.to_owned(),
                message,
            });
        });
        let service = read.into_service();
        let addresses = 0..service.cluster_ips().len();
        let addresses = addresses.map(|nth| node.position_of(&format!("cluster_ips[{nth}]")));
        entry.addresses_at = addresses.collect();
        entry.service = Some(service);
        entry
    }

    /// Takes note that another service has the name.
    pub(super) fn name_is_wrong(&mut self, message: String) {
        self.problems.push(Problem {
            at: Some(self.name_at),
            path: "name".to_owned(),
            message,
        });
    }

    /// Takes note that another service has a ClusterIP.
    pub(super) fn address_is_wrong(&mut self, nth: usize, message: String) {
        self.problems.push(Problem {
            at: self.addresses_at.get(nth).copied(),
            path: format!("cluster_ips[{nth}]"),
            message,
        });
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        Ok(Self::read(&node))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = map.next_key::<Key>()? {
            fields.push(match key.text.as_str() {
                "services" => Field::Services(map.next_value()?),
                _ => Field::Setting(key, map.next_value()?),
            });
        }
        Ok(Fields(fields))
    }
}

impl<'de, L: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for Shaped<L, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor(PhantomData))
    }
}

struct ShapeVisitor<L, M>(PhantomData<(L, M)>);

impl<'de, L: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for ShapeVisitor<L, M> {
    type Value = Shaped<L, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shaped::Nothing)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Shaped::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Shaped::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Shaped::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Shaped::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Shaped::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Shaped::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        L::deserialize(SeqAccessDeserializer::new(items)).map(Shaped::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        M::deserialize(MapAccessDeserializer::new(entries)).map(Shaped::Mapping)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "test code")]
mod tests {
    use std::fmt::Write;

    use crowfly_source::yaml::parse;

    use super::*;

    /// To read a large file takes little more memory than its services have at the end.
    #[test]
    fn the_tree_of_a_whole_file_never_exists() {
        let mut text = "services:\n".to_owned();
        for service in 0..500 {
            let _ = writeln!(
                text,
                "- name: s{service}\n  cluster_ips: [10.96.{}.{}]\n  ports: [{{ port: 80 }}]\n  endpoints:",
                service / 250,
                service % 250
            );
            for endpoint in 0..20 {
                let _ = writeln!(
                    text,
                    "  - {{ addresses: [10.244.0.{endpoint}], ports: [{{ port: 8080 }}] }}"
                );
            }
        }
        let mut documents: Vec<Document> = Vec::new();
        let memory = allocation_counter::measure(|| documents = parse(&text).unwrap());
        let Shaped::Mapping(Fields(fields)) = &documents[0].value else {
            panic!("a mapping");
        };
        let [Field::Services(services)] = fields.as_slice() else {
            panic!("services");
        };
        let Shaped::List(entries) = &services.value else {
            panic!("a list");
        };
        assert_eq!(entries.len(), 500);
        let kept = u64::try_from(memory.bytes_current).unwrap();
        assert!(
            memory.bytes_max < kept + kept / 4,
            "{} bytes to read {kept}",
            memory.bytes_max
        );
    }
}
