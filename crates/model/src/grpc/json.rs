//! A `google.protobuf.Struct` as JSON.
//!
//! Policies of a program read their configuration as JSON, because that is how gRFC A52 carries it.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::{self, Struct, value::Kind};
use serde_json::{Number, Value};

/// Doubles below this express every whole number exactly.
const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// The JSON object, or an error with the path of a value that JSON cannot express.
///
/// All numbers of a `Struct` are doubles. Whole ones become integers, because a reader of an integer
/// refuses `1.0`.
pub(super) fn object(proto: Struct) -> Result<Value, String> {
    // Sorted, so that the first of several errors is the same one every time.
    let fields: BTreeMap<_, _> = proto.fields.into_iter().collect();
    let fields = fields.into_iter().map(|(name, field)| match value(field) {
        Ok(value) => Ok((name, value)),
        Err(why) => Err(format!("{name}: {why}")),
    });
    fields.collect::<Result<_, _>>().map(Value::Object)
}

fn value(proto: protobuf::Value) -> Result<Value, String> {
    match proto.kind {
        None => Err("expected a value, got none".to_owned()),
        Some(Kind::NullValue(_)) => Ok(Value::Null),
        Some(Kind::BoolValue(value)) => Ok(Value::Bool(value)),
        Some(Kind::NumberValue(number)) => self::number(number).map(Value::Number),
        Some(Kind::StringValue(text)) => Ok(Value::String(text)),
        Some(Kind::StructValue(fields)) => object(fields),
        Some(Kind::ListValue(list)) => {
            let values = list.values.into_iter().map(value);
            Ok(Value::Array(values.collect::<Result<_, _>>()?))
        }
    }
}

fn number(double: f64) -> Result<Number, String> {
    if double.fract() == 0.0 && double.abs() < EXACT {
        return Ok(Number::from(double as i64));
    }
    Number::from_f64(double).ok_or_else(|| format!("expected a number, got {double}"))
}
