//! The warnings about a configuration that is served, and their places.
//!
//! The place of a warning is looked for when somebody asks for it. A warning itself has none, because it would
//! change with every line above it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crowfly_source::yaml::ConfigError;

use super::Translator;
use crate::references::Dangling;

/// A fact about a configuration that may be a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// A definition of a view adds something to the base.
    Placed(ConfigError),
    /// A resource refers to one that does not exist; of a view, or of the base.
    Lost(Option<Arc<str>>, Dangling),
}

impl Translator {
    /// The warnings, but for those about refused resources.
    pub(crate) fn lost_references(&self) -> impl Iterator<Item = Warning> {
        let dangling = self.references.dangling().cloned();
        let dangling = dangling.map(|of| Warning::Lost(None, of));
        dangling.chain(self.view_warnings.iter().cloned())
    }

    /// A warning with the place of the definition that makes its resource. The place is `config` if there is none.
    pub(crate) fn placed(&self, warning: Warning, config: &Path) -> ConfigError {
        match warning {
            Warning::Placed(error) => error,
            Warning::Lost(ref view, ref of) => match self.maker(view.as_deref(), &of.key) {
                Some((origin, _)) => origin.error(warning.to_string()),
                None => ConfigError::of_file(config, warning.to_string()),
            },
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed(error) => fmt::Display::fmt(error, f),
            Self::Lost(None, of) => fmt::Display::fmt(of, f),
            Self::Lost(Some(view), of) => write!(f, "view `{view}`: {of}"),
        }
    }
}
