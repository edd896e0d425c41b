//! Reports of a service's load, which clients send to the control plane (gRFC A27). A measurement
//! that gRPC would ignore is refused, so that an operator does not wait for a figure that never
//! comes.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::text::parsed;

/// The measurements of endpoints that a report can have, besides those that an endpoint names itself.
const MEASURED: [&str; 3] = [
    "application_utilization",
    "cpu_utilization",
    "mem_utilization",
];

/// The measurements that an endpoint names itself.
const NAMED: &str = "named_metrics.";

/// The load reports of a service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoadReports {
    Off,
    /// Clients report, and pass these measurements of the endpoints on (gRFC A85).
    On {
        metrics: Vec<Metric>,
    },
}

/// A measurement that endpoints send with their answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric(pub(crate) String);

impl<'de> Deserialize<'de> for LoadReports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LoadReportsVisitor)
    }
}

struct LoadReportsVisitor;

impl<'de> Visitor<'de> for LoadReportsVisitor {
    type Value = LoadReports;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or settings such as {metrics: [cpu_utilization]}")
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<LoadReports, E> {
        let on = LoadReports::On {
            metrics: Vec::new(),
        };
        Ok(if is_on { on } else { LoadReports::Off })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LoadReports, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            metrics: Vec<Metric>,
        }

        let Raw { metrics } = Raw::deserialize(MapAccessDeserializer::new(map))?;
        Ok(LoadReports::On { metrics })
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "cpu_utilization, mem_utilization, application_utilization, \
            named_metrics.NAME or named_metrics.*";
        parsed(deserializer, expected, |text| {
            let name = text.strip_prefix(NAMED);
            // gRPC ignores all others.
            if MEASURED.contains(&text) || name.is_some_and(|name| !name.is_empty()) {
                Ok(Self(text.to_owned()))
            } else {
                Err(String::new())
            }
        })
    }
}
