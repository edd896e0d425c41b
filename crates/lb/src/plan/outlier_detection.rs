//! The settings of outlier detection (A50). A plan holds them per leaf cluster, because the rules
//! compare all endpoints of a cluster with each other.

use std::time::Duration;

/// Outlier detection (A50, A61, A75): endpoints of a leaf cluster that fail too often get no calls for a
/// while. It looks at all endpoints of the cluster together, in whatever priority they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutlierDetection {
    /// The time between two looks at the calls of all endpoints.
    pub interval: Duration,
    /// The time of a first ejection. Each further one is longer by as much.
    pub base_ejection_time: Duration,
    /// The longest ejection, unless [`base_ejection_time`](Self::base_ejection_time) is longer.
    pub max_ejection_time: Duration,
    /// The percentage of endpoints that may be ejected at a time. One endpoint may always be.
    pub max_ejection_percent: u32,
    /// The rule that compares endpoints with each other; `None` if it is off.
    pub success_rate: Option<SuccessRateEjection>,
    /// The rule that looks at each endpoint alone; `None` if it is off.
    pub failure_percentage: Option<FailurePercentageEjection>,
}

/// Ejects endpoints whose share of successful calls is far below the mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuccessRateEjection {
    /// The distance below the mean, in thousandths of the standard deviation.
    pub stdev_factor: u32,
    /// The percentage of outliers that are ejected.
    pub enforcement_percentage: u32,
    /// The number of endpoints with enough calls without which none is judged.
    pub minimum_hosts: u32,
    /// The number of calls in an interval without which an endpoint is not judged.
    pub request_volume: u32,
}

/// Ejects endpoints of whose calls more than a percentage failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailurePercentageEjection {
    /// The percentage of failed calls that is still tolerated.
    pub threshold: u32,
    /// The percentage of outliers that are ejected.
    pub enforcement_percentage: u32,
    /// The number of endpoints with enough calls without which none is judged.
    pub minimum_hosts: u32,
    /// The number of calls in an interval without which an endpoint is not judged.
    pub request_volume: u32,
}

impl OutlierDetection {
    /// Returns whether any rule is on. If none is, nothing is counted and there is no timer.
    pub fn is_on(&self) -> bool {
        self.success_rate.is_some() || self.failure_percentage.is_some()
    }

    /// The time of the ejection that is the `count`th in a row.
    pub(crate) fn ejection_time(&self, count: u32) -> Duration {
        let longest = self.max_ejection_time.max(self.base_ejection_time);
        self.base_ejection_time.saturating_mul(count).min(longest)
    }
}
