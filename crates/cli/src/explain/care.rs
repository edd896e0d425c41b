//! Reports on the settings of a cluster that concern its endpoints: outlier detection and load
//! reports. Both change or count calls, so an operator must see them.

use std::fmt::{self, Display, Formatter};

use crowfly_model::grpc::cluster::{LoadReporting, NamedMetricPropagation, OutlierDetection};
use serde::Serialize;

/// The ejection of endpoints that fail too often (gRFC A50).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutlierReport {
    /// The time between two checks of the calls of all endpoints, in seconds.
    pub interval_seconds: f64,
    /// The time of a first ejection, in seconds.
    pub base_ejection_seconds: f64,
    /// The time of the longest ejection, in seconds.
    pub max_ejection_seconds: f64,
    /// The percentage of endpoints that may be ejected at a time.
    pub max_ejection_percent: u32,
    /// The distance below the mean, in standard deviations, beyond which an endpoint is ejected.
    pub stdev_factor: Option<f64>,
    /// The percentage of failed calls above which an endpoint is ejected.
    pub failure_percentage: Option<u32>,
}

/// The load reports of a cluster (gRFC A27).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadReportsReport {
    /// The measurements of endpoints in the reports (gRFC A85).
    pub metrics: Vec<String>,
}

impl From<&OutlierDetection> for OutlierReport {
    fn from(of: &OutlierDetection) -> Self {
        let factor = |thousandths: u32| f64::from(thousandths) / 1_000.0;
        Self {
            interval_seconds: of.interval.as_secs_f64(),
            base_ejection_seconds: of.base_ejection_time.as_secs_f64(),
            max_ejection_seconds: of.max_ejection_time.as_secs_f64(),
            max_ejection_percent: of.max_ejection_percent,
            stdev_factor: of.success_rate.map(|rule| factor(rule.stdev_factor)),
            failure_percentage: of.failure_percentage.map(|rule| rule.threshold),
        }
    }
}

impl Display for OutlierReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rules = [
            self.stdev_factor
                .map(|factor| format!("success rate below {factor} standard deviations")),
            self.failure_percentage
                .map(|percent| format!("failures above {percent} %")),
        ];
        let rules: Vec<String> = rules.into_iter().flatten().collect();
        write!(
            f,
            "outlier detection every {} s: {}; ejects for {} s to {} s, at most {} %",
            self.interval_seconds,
            rules.join(" or "),
            self.base_ejection_seconds,
            self.max_ejection_seconds,
            self.max_ejection_percent
        )
    }
}

impl From<&LoadReporting> for LoadReportsReport {
    fn from(of: &LoadReporting) -> Self {
        let metrics = &of.metrics;
        let measured = [
            (metrics.cpu_utilization, "cpu_utilization"),
            (metrics.mem_utilization, "mem_utilization"),
            (metrics.application_utilization, "application_utilization"),
        ];
        let measured = measured.into_iter().filter(|(is_on, _)| *is_on);
        let mut metrics: Vec<String> = measured.map(|(_, name)| name.to_owned()).collect();
        match &of.metrics.named_metrics {
            NamedMetricPropagation::None => {}
            NamedMetricPropagation::All => metrics.push("named_metrics.*".to_owned()),
            NamedMetricPropagation::AllUnprefixed => metrics.push("*".to_owned()),
            NamedMetricPropagation::Only(names) => {
                metrics.extend(names.iter().map(|name| format!("named_metrics.{name}")));
            }
        }
        Self { metrics }
    }
}

impl Display for LoadReportsReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("load reports to the xDS server")?;
        match self.metrics.as_slice() {
            [] => Ok(()),
            metrics => write!(f, ", with {}", metrics.join(", ")),
        }
    }
}
