//! Every time span of balancing, in one place.

use std::time::Duration;

/// How long a priority may be CONNECTING before the next one is tried as well (A56).
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long what is not used any more is kept, in case it comes back: a priority that a higher one
/// took over from (A56), a leaf cluster that left an aggregate, a locality that left its priority.
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// How long one more READY endpoint may wait for a picker: while endpoints connect by the thousand,
/// not each of them is worth a picker of its own. Each such wait is four times as long as the one
/// before, up to [`COALESCE_MAX`], until there was none for a while.
pub const COALESCE: Duration = Duration::from_millis(10);

/// The longest such wait, and how long there has to be none.
pub const COALESCE_MAX: Duration = Duration::from_millis(640);

/// How long an address of an endpoint has to connect before the next one is tried as well (A61).
pub const HAPPY_EYEBALLS_DELAY: Duration = Duration::from_millis(250);

/// The least such time that can be set.
pub const HAPPY_EYEBALLS_DELAY_MIN: Duration = Duration::from_millis(100);

/// The greatest such time that can be set.
pub const HAPPY_EYEBALLS_DELAY_MAX: Duration = Duration::from_secs(2);
