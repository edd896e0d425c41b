//! Every time span of balancing, in one place.

use std::time::Duration;

/// How long a priority may be CONNECTING before the next one is tried as well (A56).
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long what is not used any more is kept, in case it comes back: a priority that a higher one
/// took over from (A56), a leaf cluster that left an aggregate, a locality that left its priority.
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// How long a call of a channel may wait for a picker that has more of the same: while endpoints
/// connect by the thousand, not each of them is worth a picker of its own.
pub const COALESCE: Duration = Duration::from_millis(10);

/// How long an address of an endpoint has to connect before the next one is tried as well (A61).
pub const HAPPY_EYEBALLS_DELAY: Duration = Duration::from_millis(250);

/// The least such time that can be set.
pub const HAPPY_EYEBALLS_DELAY_MIN: Duration = Duration::from_millis(100);

/// The greatest such time that can be set.
pub const HAPPY_EYEBALLS_DELAY_MAX: Duration = Duration::from_secs(2);
