//! Flow control of what the server sends (RFC 9113, section 5.2).

/// How much the server may send before it hears that some was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    /// What the server may still send.
    left: u32,
    /// What was read and not given back yet.
    read: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            size,
            left: size,
            read: 0,
        }
    }

    /// Something came; whether it was allowed to.
    #[must_use]
    pub(crate) fn receive(&mut self, len: usize) -> bool {
        let left = u32::try_from(len)
            .ok()
            .and_then(|len| self.left.checked_sub(len));
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Something was read. The increment for the server, once it is worth a frame.
    pub(crate) fn release(&mut self, len: usize) -> Option<u32> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.read = self.read.saturating_add(len);
        if self.read < (self.size / 2).max(1) {
            return None;
        }
        self.left += self.read;
        Some(std::mem::take(&mut self.read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_comes_than_was_given_back() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        assert!(!window.receive(1));
        assert_eq!(window.release(49), None);
        assert_eq!(window.release(1), Some(50));
        assert!(window.receive(50));
        assert!(!window.receive(1));
    }
}
