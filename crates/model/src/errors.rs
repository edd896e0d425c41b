//! Every problem of a resource, each with the path of the field it is about.
//!
//! A parser does not return at the first bad field. The parser records the error in a [`Validator`] and goes on. gRFC
//! A46 asks a client to report *all* the errors of a response.

use std::fmt;

use crate::Unsupported;

/// One problem, at one field: `endpoints[2].lb_endpoints[0].endpoint.address: must be set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path from the resource's root, in proto field names. Empty for the resource itself.
    pub path: String,
    /// The problem: the expected value, and the one that was found.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// All problems of one resource; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// A single problem of the resource as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self(vec![FieldError {
            path: String::new(),
            message: message.into(),
        }])
    }

    /// The problems, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        self.0.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Collects errors while a parser reads a message, and keeps the path of the field that is being read.
///
/// ```
/// use crowfly_model::Validator;
///
/// let mut v = Validator::default();
/// v.field("endpoints", |v| {
///     v.index(2, |v| v.field("priority", |v| v.error("expected at most 128, got 900")));
/// });
/// let errors = v.finish(()).unwrap_err();
/// assert_eq!(errors.to_string(), "endpoints[2].priority: expected at most 128, got 900");
/// ```
#[derive(Debug, Default)]
pub struct Validator {
    path: String,
    errors: Vec<FieldError>,
    unsupported: Vec<Unsupported>,
}

impl Validator {
    /// Runs `f` with the path one field deeper.
    pub fn field<R>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = f(self);
        self.path.truncate(length);
        result
    }

    /// Runs `f` with the path at one element of the current (repeated) field.
    pub fn index<R>(&mut self, index: usize, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        let result = f(self);
        self.path.truncate(length);
        result
    }

    /// Runs `f` with the path at one entry of the current (map) field.
    ///
    /// ```
    /// # use crowfly_model::Validator;
    /// let mut v = Validator::default();
    /// v.field("typed_per_filter_config", |v| v.key("fault", |v| v.error("expected a config")));
    /// let errors = v.finish(()).unwrap_err();
    /// assert_eq!(errors.to_string(), "typed_per_filter_config[fault]: expected a config");
    /// ```
    pub fn key<R>(&mut self, key: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        self.path.push_str(&format!("[{key}]"));
        let result = f(self);
        self.path.truncate(length);
        result
    }

    /// Records a problem at the current path.
    pub fn error(&mut self, message: impl Into<String>) {
        self.errors.push(FieldError {
            path: self.path.clone(),
            message: message.into(),
        });
    }

    /// Records a problem at field `name` of the current path.
    pub fn error_at(&mut self, name: &str, message: impl Into<String>) {
        self.field(name, |v| v.error(message));
    }

    /// Records that the field at the current path has no effect. The message says what the client does instead. The
    /// resource stays valid.
    pub fn unsupported(&mut self, message: impl Into<String>) {
        self.unsupported.push(Unsupported {
            path: self.path.clone(),
            message: message.into(),
        });
    }

    /// Records that field `name` of the current path has no effect, like [`unsupported`](Self::unsupported).
    pub fn unsupported_at(&mut self, name: &str, message: impl Into<String>) {
        self.field(name, |v| v.unsupported(message));
    }

    /// Runs `f` and takes out the unsupported fields that it recorded. The paths of those fields become relative to the
    /// current path.
    pub fn take_unsupported<R>(
        &mut self,
        f: impl FnOnce(&mut Self) -> R,
    ) -> (R, Box<[Unsupported]>) {
        let before = self.unsupported.len();
        let result = f(self);
        let taken = self.unsupported.split_off(before);
        let taken = taken.iter().filter_map(|wish| wish.below(&self.path));
        (result, taken.collect())
    }

    /// True if an error has been recorded.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The value, or all errors if any were recorded.
    pub fn finish<T>(self, value: T) -> Result<T, Errors> {
        if self.errors.is_empty() {
            Ok(value)
        } else {
            Err(Errors(self.errors))
        }
    }
}
