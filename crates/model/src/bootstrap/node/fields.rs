//! The fields of a message in proto JSON form.
//!
//! A node is read by hand with this, because no schema of the protos is linked into a client.

use envoy_types::pb::google::protobuf::{ListValue, Struct, Value, value::Kind};
use serde_json::Value as Json;

use crate::{
    Validator,
    bootstrap::json::{Object, kind_of, object},
};

/// A message in JSON form. Each field is found by either of its names (`sub_zone`, `subZone`). A field
/// that is unset or null is empty. A field of a wrong type is an error.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(&'a Object);

impl<'a> Fields<'a> {
    pub(super) fn of(json: &'a Json, v: &mut Validator) -> Option<Self> {
        object(json, v).map(Self)
    }

    pub(super) fn object(self) -> &'a Object {
        self.0
    }

    pub(super) fn text(self, name: &str, v: &mut Validator) -> String {
        match self.find(name) {
            None => String::new(),
            Some((_, Json::String(text))) => text.clone(),
            Some((name, other)) => wrong(&name, "a string", other, v),
        }
    }

    pub(super) fn flag(self, name: &str, v: &mut Validator) -> bool {
        match self.find(name) {
            None => false,
            Some((_, Json::Bool(flag))) => *flag,
            Some((name, other)) => wrong(&name, "a boolean", other, v),
        }
    }

    /// A number. Proto JSON allows it as a string too.
    pub(super) fn number(self, name: &str, v: &mut Validator) -> u32 {
        let Some((name, json)) = self.find(name) else {
            return 0;
        };
        let number = match json {
            Json::String(text) => text.parse().ok(),
            json => json.as_u64().and_then(|number| number.try_into().ok()),
        };
        number.unwrap_or_else(|| wrong(&name, "a number of 32 bits", json, v))
    }

    pub(super) fn texts(self, name: &str, v: &mut Validator) -> Vec<String> {
        let texts = self.list(name, v, |json, v| match json {
            Json::String(text) => Some(text.clone()),
            other => {
                v.error(format!("expected a string, got {}", kind_of(other)));
                None
            }
        });
        texts.into_iter().flatten().collect()
    }

    pub(super) fn message<T>(
        self,
        name: &str,
        v: &mut Validator,
        read: impl FnOnce(Self, &mut Validator) -> T,
    ) -> Option<T> {
        let (name, json) = self.find(name)?;
        v.field(&name, |v| Some(read(Fields::of(json, v)?, v)))
    }

    pub(super) fn messages<T>(
        self,
        name: &str,
        v: &mut Validator,
        read: impl Fn(Self, &mut Validator) -> T,
    ) -> Vec<T> {
        let messages = self.list(name, v, |json, v| Some(read(Fields::of(json, v)?, v)));
        messages.into_iter().flatten().collect()
    }

    fn list<T>(
        self,
        name: &str,
        v: &mut Validator,
        read: impl Fn(&'a Json, &mut Validator) -> T,
    ) -> Vec<T> {
        match self.find(name) {
            None => Vec::new(),
            Some((name, Json::Array(items))) => v.field(&name, |v| {
                let items = items.iter().enumerate();
                items
                    .map(|(i, item)| v.index(i, |v| read(item, v)))
                    .collect()
            }),
            Some((name, other)) => wrong(&name, "an array", other, v),
        }
    }

    /// A field that is set, with its name as the file writes it.
    pub(super) fn find(self, name: &str) -> Option<(String, &'a Json)> {
        let names = [name.to_owned(), camel_case(name)];
        let mut found = names
            .into_iter()
            .filter_map(|name| Some((self.0.get(&name)?, name)));
        let (json, name) = found.find(|(json, _)| !json.is_null())?;
        Some((name, json))
    }
}

fn wrong<T: Default>(name: &str, expected: &str, got: &Json, v: &mut Validator) -> T {
    v.error_at(name, format!("expected {expected}, got {}", kind_of(got)));
    T::default()
}

/// `sub_zone` as `subZone`.
fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(1.min(part.len()));
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(rest);
    }
    camel
}

pub(super) fn to_struct(json: &Object) -> Struct {
    let fields = json.iter();
    Struct {
        fields: fields
            .map(|(name, json)| (name.clone(), to_value(json)))
            .collect(),
    }
}

fn to_value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(*flag),
        // A Struct has no other numbers; a JSON number that is no f64 does not come from the parser.
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(to_value).collect(),
        }),
        Json::Object(fields) => Kind::StructValue(to_struct(fields)),
    };
    Value { kind: Some(kind) }
}
