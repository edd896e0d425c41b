//! The settings of a channel that are about retries.
//!
//! These settings belong to the program and not to xDS (gRFC A6). The settings say whether policies are used, when too
//! many calls fail, and how much memory a call may take.

use std::sync::Arc;

use super::{BuildError, ChannelBuilder};
use crate::call::{RetrySettings, RetryThrottle};

impl ChannelBuilder {
    /// Uses the retry policies of routes if `on` (gRFC A44); the default is yes. Programs that repeat calls
    /// themselves turn them off.
    ///
    /// Calls that no server has acted on are still repeated (transparent retries, gRFC A6).
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("xds:///payments").retry_policies(false);
    /// ```
    pub fn retry_policies(mut self, on: bool) -> Self {
        self.retries.policies = on;
        self
    }

    /// Stops retries by policy while many calls of this channel fail (gRFC A6). By default they are not
    /// stopped, because xDS has no field for it.
    ///
    /// The channel has up to `max_tokens` tokens, from 1 to 1,000. Every attempt that fails with a code of its
    /// retry policy takes one, and every call that succeeds gives back `token_ratio`, at least 0.001. Attempts
    /// are repeated while more than half of the tokens are left.
    ///
    /// ```
    /// // Stops when more than about one attempt in ten fails.
    /// let builder = crowfly::Channel::builder("xds:///payments").retry_throttling(10, 0.1);
    /// ```
    pub fn retry_throttling(mut self, max_tokens: u32, token_ratio: f64) -> Self {
        self.retry_throttling = Some((max_tokens, token_ratio));
        self
    }

    /// Keeps at most this many bytes of each request, so that it can be sent again. The default is 256 KiB.
    ///
    /// A request that outgrows the buffer goes on, but its call is not repeated any more. The call of a client
    /// stream keeps all messages until its response begins.
    ///
    /// ```
    /// let builder = crowfly::Channel::builder("xds:///payments").retry_buffer_size(1024 * 1024);
    /// ```
    pub fn retry_buffer_size(mut self, bytes: usize) -> Self {
        self.retries.buffer = bytes;
        self
    }

    /// The settings for calls. The error says which of them is out of range.
    pub(super) fn retry_settings(&self) -> Result<RetrySettings, BuildError> {
        let mut settings = self.retries.clone();
        // Without policies there is nothing to throttle.
        if let Some((max_tokens, token_ratio)) = self.retry_throttling.filter(|_| settings.policies)
        {
            let throttle = RetryThrottle::new(max_tokens, token_ratio);
            let throttle = throttle.map_err(BuildError::RetryThrottling)?;
            settings.throttle = Some(Arc::new(throttle));
        }
        Ok(settings)
    }
}
