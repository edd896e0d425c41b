//! The abilities of the terminal, and the environment variables by which its user limits them.

use std::{
    env,
    ffi::{OsStr, OsString},
};

/// True if the terminal understands plain text only (`TERM=dumb`), as that of an editor.
pub(crate) fn is_dumb() -> bool {
    means_dumb(env::var_os("TERM").as_deref())
}

/// True if the terminal shows colours and its user wants them.
pub(crate) fn has_colors() -> bool {
    !refuses_colors(env::var_os("NO_COLOR")) && !is_dumb()
}

/// The rule of <https://no-color.org>: any value but the empty one asks for no colours.
fn refuses_colors(no_color: Option<OsString>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

fn means_dumb(term: Option<&OsStr>) -> bool {
    term == Some(OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        assert!(refuses_colors(Some("1".into())));
        assert!(!refuses_colors(Some("".into())));
        assert!(!refuses_colors(None));
        assert!(means_dumb(Some("dumb".as_ref())));
        assert!(!means_dumb(Some("xterm".as_ref())));
        assert!(!means_dumb(None));
    }
}
