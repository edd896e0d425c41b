//! Log lines that a client can cause at will, and that must not fill the disk. Some are left out and
//! counted, because an operator needs the first lines and the number, and not all of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Pacer;

/// The lines of one kind. By default one a second is written, after ten at once, and the number of those that were left
/// out.
#[derive(Debug)]
pub(crate) struct Hush(Mutex<State>);

#[derive(Debug)]
struct State {
    pacer: Pacer,
    left_out: u64,
}

impl Hush {
    /// Lines of which so many are written in a second, with `seconds` worth at once.
    pub(crate) fn new(per_second: u32, seconds: u32) -> Self {
        Self(Mutex::new(State {
            pacer: Pacer::new(per_second, seconds),
            left_out: 0,
        }))
    }

    /// The number of lines that were left out before this one; `None` if this one is left out, too.
    pub(crate) fn may_tell(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.pacer.reserve(1, Duration::ZERO, now).is_none() {
            state.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut state.left_out))
    }
}

impl Default for Hush {
    fn default() -> Self {
        Self::new(1, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_pace_are_counted() {
        let (hush, now) = (Hush::default(), Instant::now());
        let told = (0..1_000).filter_map(|_| hush.may_tell(now)).count();
        assert_eq!(told, 10);
        assert_eq!(hush.may_tell(now + Duration::from_secs(1)), Some(990));
        assert_eq!(hush.may_tell(now + Duration::from_secs(2)), Some(0));
    }
}
