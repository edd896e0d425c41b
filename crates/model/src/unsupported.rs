//! Fields of a valid resource that are set and have no effect.
//!
//! A resource carries them, so that the log and `crowfly explain` can name them with their paths.

use std::fmt;

/// A field that is set and has no effect, in a resource that is valid and used.
///
/// The log, `crowfly explain` and other tools show such a field, because users expect an accepted
/// field to have an effect.
///
/// ```
/// use crowfly_model::Unsupported;
///
/// let wish = Unsupported {
///     path: "outlier_detection".to_owned(),
///     message: "no endpoint is ejected".to_owned(),
/// };
/// assert_eq!(wish.to_string(), "outlier_detection: no endpoint is ejected");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path from the resource's root, in proto field names.
    pub path: String,
    /// The behaviour in place of the one that was asked for.
    pub message: String,
}

impl Unsupported {
    /// The field with its path relative to `path`; `None` if the field is not at `path` or below it.
    ///
    /// ```
    /// use crowfly_model::Unsupported;
    ///
    /// let wish = Unsupported {
    ///     path: "virtual_hosts[0].routes[1].route.retry_policy".to_owned(),
    ///     message: "none".to_owned(),
    /// };
    /// let below = wish.below("virtual_hosts[0].routes[1]").unwrap();
    /// assert_eq!(below.path, "route.retry_policy");
    /// assert_eq!(wish.below("virtual_hosts[0].routes[10]"), None);
    /// ```
    pub fn below(&self, path: &str) -> Option<Self> {
        let rest = self.path.strip_prefix(path)?;
        let path = match rest.strip_prefix('.') {
            Some(rest) => rest,
            None if path.is_empty() || rest.is_empty() => rest,
            None => return None,
        };
        Some(Self {
            path: path.to_owned(),
            message: self.message.clone(),
        })
    }

    /// The field with `path` before its own path, because its resource is inside another one at `path`.
    pub(crate) fn at(&self, path: &str) -> Self {
        Self {
            path: format!("{path}.{}", self.path),
            message: self.message.clone(),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}
