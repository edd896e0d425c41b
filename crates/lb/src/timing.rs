//! Every time span of balancing. They are in one place, so that they can be compared with the gRFCs
//! and with each other.

use std::time::Duration;

/// The time for which a priority may be CONNECTING before the next one is tried as well (A56).
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which an unused part of a tree is kept, because it may come back. Such a part is a
/// priority below the one in use (A56). It may also be a leaf cluster that left an aggregate, or a
/// locality that left its priority.
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// The least time between two looks for connections that sessions no longer use (A75).
pub const SESSION_SWEEP_MIN: Duration = Duration::from_secs(5);

/// The time for which one more READY endpoint may wait for a picker. It may wait, because a picker
/// for each of thousands of connecting endpoints would cost too much. Each wait is four times as
/// long as the one before, up to [`COALESCE_MAX`]. After a time of `COALESCE_MAX` without a wait,
/// the first is short again.
pub const COALESCE: Duration = Duration::from_millis(10);

/// The longest wait of a READY endpoint for a picker, and the time without waits after which they
/// are short again.
pub const COALESCE_MAX: Duration = Duration::from_millis(640);

/// The time for which an address of an endpoint may connect before the next one is tried as well
/// (A61).
pub const HAPPY_EYEBALLS_DELAY: Duration = Duration::from_millis(250);

/// The least [`HAPPY_EYEBALLS_DELAY`] that can be set (A61).
pub const HAPPY_EYEBALLS_DELAY_MIN: Duration = Duration::from_millis(100);

/// The greatest [`HAPPY_EYEBALLS_DELAY`] that can be set (A61).
pub const HAPPY_EYEBALLS_DELAY_MAX: Duration = Duration::from_secs(2);
