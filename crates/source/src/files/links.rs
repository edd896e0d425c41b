//! The symbolic links on the way to a file.
//!
//! Kubernetes shows a ConfigMap as `config.yaml -> ..data/config.yaml` and `..data -> ..2026_01`,
//! and changes it by replacing `..data`. Nothing happens to `config.yaml` itself. So a change of it
//! is noticed only by a look at every link between.

use std::path::{Component, Path, PathBuf};

/// The number of links that are followed, which is that of Linux.
const MAX_LINKS: usize = 40;

/// Every link that is followed to open `path`, and the file itself at the end.
pub(super) fn links_of(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(mut path) = std::path::absolute(path) else {
        return found;
    };
    while found.len() < MAX_LINKS {
        match first_link(&path) {
            Step::Link { link, target } => {
                found.push(link);
                path = target;
            }
            Step::End(file) => {
                found.push(file);
                break;
            }
        }
    }
    found
}

enum Step {
    /// The first link of the path, and the path with that link replaced by what it points to.
    Link { link: PathBuf, target: PathBuf },
    /// The path has no link. This is the path without `..`.
    End(PathBuf),
}

fn first_link(path: &Path) -> Step {
    let mut prefix = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        if component == Component::ParentDir {
            prefix.pop();
            continue;
        }
        prefix.push(component);
        if let Ok(target) = prefix.read_link() {
            let parent = prefix.parent().unwrap_or_else(|| Path::new("/"));
            let target = parent.join(target).join(components.as_path());
            return Step::Link {
                link: prefix,
                target,
            };
        }
    }
    Step::End(prefix)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn finds_every_link_of_a_config_map() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("..v1")).unwrap();
        std::fs::write(root.join("..v1/config.yaml"), "").unwrap();
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/config.yaml", root.join("config.yaml")).unwrap();

        let links = links_of(&root.join("config.yaml"));
        let expected = ["config.yaml", "..data", "..v1/config.yaml"];
        assert_eq!(links, expected.map(|name| root.join(name)));
    }

    #[test]
    fn a_link_out_of_its_directory_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("etc")).unwrap();
        symlink("../real.yaml", root.join("etc/config.yaml")).unwrap();

        let links = links_of(&root.join("etc/config.yaml"));
        assert_eq!(
            links,
            ["etc/config.yaml", "real.yaml"].map(|name| root.join(name))
        );
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert_eq!(links_of(&dir.path().join("a")).len(), MAX_LINKS);
    }
}
