//! The levels of clusters below each service, kept up to date.
//!
//! A change of one service may make a circle, or make chains through it too long. Checking all
//! services for that would cost too much at each change. So only services whose fallbacks changed
//! are checked, and those that fall back to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crowfly_xds::MAX_DEPTH;

use super::Fallback;
use crate::service::Service;

/// The part of a service that its level depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    is_aggregate: bool,
    /// The services that it falls back to.
    uses: Vec<Arc<str>>,
}

impl Shape {
    pub(crate) fn of(service: &Service) -> Self {
        let uses = service
            .fallback
            .iter()
            .filter_map(|fallback| match fallback {
                Fallback::Service(name) => Some(name.as_str().into()),
                Fallback::Dns(_) => None,
            });
        Self {
            is_aggregate: service.is_aggregate(),
            uses: uses.collect(),
        }
    }
}

/// The shapes of all services, and their levels.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    shapes: BTreeMap<Arc<str>, Shape>,
    /// For each name, the services that fall back to it.
    users: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    levels: BTreeMap<Arc<str>, usize>,
    /// The services that changed since the last check that found no problem.
    changed: BTreeSet<Arc<str>>,
}

/// The fallbacks have a circle, a chain that is too long, or a name that is not a service.
struct Unsound;

impl Levels {
    /// Sets the shape of a service; `None` if the service was removed.
    pub(crate) fn set(&mut self, name: &Arc<str>, shape: Option<Shape>) {
        if self.shapes.get(name) == shape.as_ref() {
            return;
        }
        self.changed.insert(Arc::clone(name));
        for used in self
            .shapes
            .remove(name)
            .into_iter()
            .flat_map(|old| old.uses)
        {
            if let Some(users) = self.users.get_mut(&used) {
                users.remove(name);
                if users.is_empty() {
                    self.users.remove(&used);
                }
            }
        }
        if let Some(shape) = shape {
            for used in &shape.uses {
                let users = self.users.entry(Arc::clone(used)).or_default();
                users.insert(Arc::clone(name));
            }
            self.shapes.insert(Arc::clone(name), shape);
        }
    }

    /// True if every fallback is a service, there is no circle, and no chain is too long. If not,
    /// the services that changed are checked again the next time.
    pub(crate) fn are_sound(&mut self) -> bool {
        let affected = self.affected();
        for name in &affected {
            self.levels.remove(name);
        }
        let is_sound = affected.iter().all(|name| {
            let is_used = self.users.contains_key(name);
            let is_gone = !self.shapes.contains_key(name);
            if is_gone {
                !is_used
            } else {
                self.level(name, 1).is_ok()
            }
        });
        if is_sound {
            self.changed.clear();
        }
        is_sound
    }

    /// The services that fall back to `name`.
    pub(crate) fn users_of(&self, name: &str) -> impl Iterator<Item = &Arc<str>> {
        self.users.get(name).into_iter().flatten()
    }

    /// The services in `shapes` that make a circle or too long a chain, if these take the place of those of the same
    /// name. The work is in proportion to `shapes` and what leads there.
    pub(crate) fn unsound_with(&self, shapes: &BTreeMap<Arc<str>, Shape>) -> BTreeSet<Arc<str>> {
        let is_unsound = |name: &&Arc<str>| {
            let above = self.with_users([Arc::clone(name)]);
            let mut known = BTreeMap::new();
            let mut all = above.iter();
            all.any(|name| self.level_with(shapes, name, 1, &mut known).is_err())
        };
        shapes.keys().filter(is_unsound).cloned().collect()
    }

    /// The level of a service with other shapes, as [`level`](Self::level) gives it.
    fn level_with(
        &self,
        shapes: &BTreeMap<Arc<str>, Shape>,
        name: &Arc<str>,
        depth: usize,
        known: &mut BTreeMap<Arc<str>, usize>,
    ) -> Result<usize, Unsound> {
        if depth > MAX_DEPTH {
            return Err(Unsound);
        }
        if let Some(level) = known.get(name) {
            return Ok(*level);
        }
        let shape = shapes.get(name).or_else(|| self.shapes.get(name));
        let shape = shape.ok_or(Unsound)?;
        let mut below = usize::from(shape.is_aggregate);
        for used in &shape.uses {
            below = below.max(self.level_with(shapes, used, depth + 1, known)?);
        }
        if below + 1 > MAX_DEPTH {
            return Err(Unsound);
        }
        known.insert(Arc::clone(name), below + 1);
        Ok(below + 1)
    }

    /// The services that changed, and all that fall back to one of them, directly or not.
    fn affected(&self) -> BTreeSet<Arc<str>> {
        self.with_users(self.changed.iter().cloned())
    }

    /// Some services, and all that fall back to one of them, directly or not.
    fn with_users(&self, names: impl IntoIterator<Item = Arc<str>>) -> BTreeSet<Arc<str>> {
        let mut affected = BTreeSet::new();
        let mut open: Vec<_> = names.into_iter().collect();
        while let Some(name) = open.pop() {
            if affected.insert(Arc::clone(&name)) {
                let users = self.users.get(&name).into_iter().flatten();
                open.extend(users.cloned());
            }
        }
        affected
    }

    /// The level of a service that is `depth` levels below the first one. A circle ends the
    /// recursion too, because it is deeper than any chain may be.
    fn level(&mut self, name: &Arc<str>, depth: usize) -> Result<usize, Unsound> {
        if depth > MAX_DEPTH {
            return Err(Unsound);
        }
        if let Some(level) = self.levels.get(name) {
            return Ok(*level);
        }
        let shape = self.shapes.get(name).cloned().ok_or(Unsound)?;
        let mut below = usize::from(shape.is_aggregate);
        for used in &shape.uses {
            below = below.max(self.level(used, depth + 1)?);
        }
        let level = below + 1;
        if level > MAX_DEPTH {
            return Err(Unsound);
        }
        self.levels.insert(Arc::clone(name), level);
        Ok(level)
    }
}
