//! A YAML document that keeps the place of each value in the file.
//!
//! serde reads everything from this tree: short forms and proto JSON. So every error names the line and
//! the field. That holds for errors of the schema, of proto reflection, and of later checks that know
//! only a path.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor,
};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

use super::error::Position;
use super::reader::{self, Problem, Told};

/// A value and the place where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The place.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An empty value, or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that an `i64` has no room for.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// The key of a mapping's entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The place where it begins.
    pub at: Position,
    /// The key.
    pub text: String,
}

/// A value of any type, and the place where it begins.
///
/// A reader of a large file uses it to read parts of a document while it is parsed. So the tree of the whole
/// document never exists.
///
/// ```
/// use crowfly_source::yaml::{Node, Placed, parse};
///
/// // Each element is a tree of its own.
/// let documents: Vec<Placed<Vec<Node>>> = parse("[a, b]").unwrap();
/// assert_eq!(documents[0].value[1].at.column, 5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Placed<T> {
    /// The place.
    pub at: Position,
    /// The value.
    pub value: T,
}

/// Reads all documents of a YAML (or JSON) file, each as a `T`. Empty documents are skipped.
///
/// # Errors
/// The text is not YAML, it is over a limit, or a document is no `T`.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Problem> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| Problem {
        at: error.location().map(position),
        path: String::new(),
        message: UserMessageFormatter.format_message(&error).into_owned(),
    })
}

impl Node {
    /// Reads all documents of a YAML (or JSON) file.
    ///
    /// # Errors
    /// The text is not YAML, or it is over a limit.
    pub fn parse(text: &str) -> Result<Vec<Self>, Problem> {
        parse(text)
    }

    /// Reads this node, which is at `path` of its document, as a `T`.
    ///
    /// # Errors
    /// The first problem, with its place.
    pub fn read<'a, T: Deserialize<'a>>(&'a self, path: &str) -> Result<T, Problem> {
        reader::read(self, PhantomData::<T>, path, Told::Value)
    }

    /// Reads this node as [`read`](Self::read) does, with a seed. The node may hold secrets, so a problem tells the
    /// kind of a value and not the value. Names of fields are told.
    ///
    /// # Errors
    /// The first problem, with its place.
    pub fn read_discreetly<'a, S: DeserializeSeed<'a>>(
        &'a self,
        seed: S,
        path: &str,
    ) -> Result<S::Value, Problem> {
        reader::read(self, seed, path, Told::Kind)
    }

    /// The entry of a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|(k, _)| k.text == key)
            .map(|(_, node)| node)
    }

    /// The entries of a mapping; empty for other values.
    pub fn entries(&self) -> &[(Key, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The place of `path` (such as `localities[1].weight`), or of its nearest parent that is
    /// written.
    pub fn position_of(&self, path: &str) -> Position {
        self.nearest(path).at
    }

    /// The node at `path`, or its nearest parent that is written.
    pub fn nearest(&self, path: &str) -> &Self {
        self.nearest_by(path, |key, step| key == step)
    }

    /// The node at `path`, or its nearest parent that is written. `is_same` says whether a key of the document is
    /// that of a step, because some formats have two spellings.
    ///
    /// ```
    /// # use crowfly_source::yaml::Node;
    /// let nodes = Node::parse("{ hosts: { a.b: [{ Port: 1 }] } }").unwrap();
    /// let found = nodes[0].nearest_by("hosts[a.b][0].port", |key, step| key.eq_ignore_ascii_case(step));
    /// assert_eq!(found.at.column, 26);
    /// ```
    pub fn nearest_by(&self, path: &str, is_same: impl Fn(&str, &str) -> bool) -> &Self {
        let mut node = self;
        for step in steps_of(path) {
            let next = match &node.value {
                Value::List(items) => step.parse().ok().and_then(|i: usize| items.get(i)),
                Value::Map(entries) => {
                    let mut entries = entries.iter();
                    let found = entries.find(|(key, _)| is_same(&key.text, step));
                    found.map(|(_, node)| node)
                }
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node
    }
}

/// The steps of a path: fields after dots, and indexes or keys in brackets. A key in brackets may have dots.
fn steps_of(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        let (step, after) = match rest.strip_prefix('[') {
            Some(inside) => inside.split_once(']').unwrap_or((inside, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        let is_end = rest.is_empty();
        rest = after;
        (!is_end).then_some(step)
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Placed { at, value } = Placed::deserialize(deserializer)?;
        Ok(Self { at, value })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Self {
            at: position(spanned.referenced),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Placed { at, value } = Placed::deserialize(deserializer)?;
        Ok(Self { at, text: value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Int(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Uint(v))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::Float(v))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::Text(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        // Most lists and mappings are short, and a large file has very many of them.
        items.shrink_to_fit();
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        entries.shrink_to_fit();
        Ok(Value::Map(entries))
    }
}

fn position(location: serde_saphyr::Location) -> Position {
    Position {
        line: location.line(),
        column: location.column(),
    }
}

/// The options of the YAML parser. Its limits protect from endless input, and allow a file with a
/// million endpoints. `no` and `on` are strings, because zones may have such names.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 100,
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_total_scalar_bytes: 1 << 30,
            max_total_comment_bytes: 1 << 30,
            max_buffered_comment_events: 100_000,
        },
    }
}
