//! The limits of the store of loads. They hold for all clients together, and each address has a share of the rows. A
//! stream has no share of its own, because a client may open one stream after the other.

/// The most that the store keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most rows. A row with a full history takes about a kilobyte.
    pub(super) rows: usize,
    /// The most rows that the clients of one address may bring, so that none takes them from all others.
    pub(super) rows_of_address: usize,
    /// The most entries in all rows. Each name of a category or metric is an entry. So is the newest report of a
    /// client about a row, and each metric in that report. The largest takes about 600 bytes.
    pub(super) entries: usize,
    /// The most entries that one report may take.
    pub(super) entries_of_stream: usize,
}

/// The most rows in all.
const ROWS: usize = 50_000;

impl Limits {
    /// The limits, with the part of a total that one address may take.
    pub(super) fn new(of_address: impl Fn(usize) -> usize) -> Self {
        Self {
            rows_of_address: of_address(ROWS),
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows: ROWS,
            rows_of_address: ROWS / 2,
            entries: 500_000,
            entries_of_stream: 100_000,
        }
    }
}
