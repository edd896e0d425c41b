//! Reads a [`Node`] with serde, and gives every error its place in the file.
//!
//! serde itself knows no places, and an operator needs the line of a mistake.

use std::cell::Cell;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::Position;
use super::tree::{Key, Node, Value};

/// How much of a value the problem with it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The value.
    Value,
    /// Its kind alone, because it may be a secret.
    Kind,
}

/// Reads `node`, which is at `path` of its document.
pub(super) fn read<'a, S: DeserializeSeed<'a>>(
    node: &'a Node,
    seed: S,
    path: &str,
    told: Told,
) -> Result<S::Value, Problem> {
    let reader = Reader {
        node,
        path: &Path::Root(path),
        told,
    };
    seed.deserialize(reader)
        .map_err(|problem| reader.locate(problem))
}

/// A problem of reading a node. It is made without a place, and then gets the innermost one.
#[derive(Debug)]
pub struct Problem {
    /// The place in the file.
    pub at: Option<Position>,
    /// The path of the field from the root of the document.
    pub path: String,
    /// The problem, and what was expected.
    pub message: String,
}

impl Problem {
    fn new(message: impl fmt::Display) -> Self {
        Self {
            at: None,
            path: String::new(),
            message: message.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message)
    }

    fn invalid_type(got: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_value(got, expected)
    }

    fn invalid_value(got: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = match expected.to_string() {
            number if number == "u32" => "a number from 0 to 4294967295".to_owned(),
            number if number == "a nonzero u32" => "a number from 1 to 4294967295".to_owned(),
            number if number == "f64" => "a number".to_owned(),
            number if number == "i64" => "a whole number".to_owned(),
            list if list == "a sequence" => "a list".to_owned(),
            other => other,
        };
        let got = match got {
            Unexpected::Unit => "nothing".to_owned(),
            other => other.to_string(),
        };
        Self::new(format_args!("expected {expected}, got {got}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format_args!("expected a field `{field}`"))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        if expected.is_empty() {
            return Self::new("unknown field, expected none");
        }
        Self::new(format_args!(
            "unknown field, expected one of {}",
            expected.join(", ")
        ))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format_args!(
            "expected one of {}, got {variant:?}",
            expected.join(", ")
        ))
    }
}

/// The path from the root to a node, as a list on the stack.
enum Path<'a> {
    Root(&'a str),
    Field(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(path) => f.write_str(path),
            Path::Field(Path::Root(""), name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Reads one node for serde.
#[derive(Clone, Copy)]
struct Reader<'de, 'p> {
    node: &'de Node,
    path: &'p Path<'p>,
    told: Told,
}

impl<'de, 'p> Reader<'de, 'p> {
    /// A reader of a part of this node.
    fn inner(&self, node: &'de Node, path: &'p Path<'p>) -> Self {
        Self {
            node,
            path,
            ..*self
        }
    }

    fn locate(&self, mut problem: Problem) -> Problem {
        if problem.at.is_none() && self.told == Told::Kind {
            problem.message = without_value(&problem.message, &self.node.value);
        }
        locate(problem, self.node.at, self.path)
    }
}

/// The message of a problem with `value`, without the value.
fn without_value(message: &str, value: &Value) -> String {
    let (kind, is_scalar) = match value {
        Value::Null => ("nothing", true),
        Value::Bool(_) => ("a boolean", true),
        Value::Int(_) | Value::Uint(_) | Value::Float(_) => ("a number", true),
        Value::Text(_) => ("a string", true),
        Value::List(_) => ("a list", false),
        Value::Map(_) => ("a map", false),
    };
    if let Some((expected, _)) = message.split_once(", got ") {
        return format!("{expected}, got {kind}");
    }
    // Readers of single values quote them, or tell more of them after a colon.
    let end = message.find(['\'', '"', '`', ':']).filter(|_| is_scalar);
    message[..end.unwrap_or(message.len())]
        .trim_end()
        .to_owned()
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(v) => visitor.visit_bool(*v),
            Value::Int(v) => visitor.visit_i64(*v),
            Value::Uint(v) => visitor.visit_u64(*v),
            Value::Float(v) => visitor.visit_f64(*v),
            Value::Text(v) => visitor.visit_borrowed_str(v),
            Value::List(items) => visitor.visit_seq(Items {
                reader: self,
                items,
                next: 0,
            }),
            Value::Map(entries) => return read_map(self, entries, visitor),
        };
        result.map_err(|problem| self.locate(problem))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor
            .visit_newtype_struct(self)
            .map_err(|problem| self.locate(problem))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let Value::Text(text) = &self.node.value else {
            return self.deserialize_any(visitor);
        };
        let text: StrDeserializer<'_, Problem> = text.as_str().into_deserializer();
        visitor
            .visit_enum(text)
            .map_err(|problem| self.locate(problem))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de, 'p> {
    reader: Reader<'de, 'p>,
    items: &'de [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Problem> {
        let Some(node) = self.items.get(self.next) else {
            return Ok(None);
        };
        let path = Path::Index(self.reader.path, self.next);
        self.next += 1;
        let reader = self.reader.inner(node, &path);
        seed.deserialize(reader)
            .map(Some)
            .map_err(|problem| reader.locate(problem))
    }
}

fn read_map<'de, V: Visitor<'de>>(
    reader: Reader<'de, '_>,
    entries: &'de [(Key, Node)],
    visitor: V,
) -> Result<V::Value, Problem> {
    let current = Cell::new(None);
    let result = visitor.visit_map(Entries {
        reader,
        order: type_first(entries),
        next: 0,
        current: &current,
    });
    result.map_err(|problem| match current.get() {
        // The visitor refused the key that it was just given, or its value.
        Some(key) => locate(problem, key.at, &Path::Field(reader.path, &key.text)),
        None => reader.locate(problem),
    })
}

/// The entries with `@type` first. A reader of `Any` that meets `@type` late buffers the entries
/// before it, and their places are lost.
fn type_first(entries: &[(Key, Node)]) -> Vec<&(Key, Node)> {
    let mut order: Vec<_> = entries.iter().collect();
    order.sort_by_key(|(key, _)| key.text != "@type");
    order
}

struct Entries<'de, 'p> {
    reader: Reader<'de, 'p>,
    order: Vec<&'de (Key, Node)>,
    next: usize,
    /// The key that was read last; `None` after the last entry.
    current: &'p Cell<Option<&'de Key>>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        let key = self.order.get(self.next).map(|(key, _)| key);
        self.current.set(key);
        let Some(key) = key else { return Ok(None) };
        let text = BorrowedStrDeserializer::new(&key.text);
        seed.deserialize(text).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Problem> {
        let Some((key, node)) = self.order.get(self.next) else {
            return Err(Problem::new("expected a value"));
        };
        self.next += 1;
        let path = Path::Field(self.reader.path, &key.text);
        let reader = self.reader.inner(node, &path);
        seed.deserialize(reader)
            .map_err(|problem| reader.locate(problem))
    }
}

fn locate(mut problem: Problem, at: Position, path: &Path<'_>) -> Problem {
    if problem.at.is_none() {
        problem.at = Some(at);
        problem.path = path.to_string();
    }
    problem
}
