//! Finds all problems of the fallbacks between services.
//!
//! xDS allows circles and gRPC copes with them, but an Envoy may not, and nobody wants one. So they
//! are refused here. A chain that is too long is refused too, because gRPC would refuse it (gRFC
//! A37).
//!
//! This looks at all services, to name every problem in a fixed order. [`Levels`](super::Levels)
//! finds out at less cost whether there is a problem.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crowfly_source::yaml::ConfigError;
use crowfly_xds::MAX_DEPTH;

use crate::catalog::{Origin, Written};
use crate::service::Service;

/// A service that is named by another, as a fallback or in a route.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// The name of the service.
    pub(crate) to: String,
    /// The place where the reference is written.
    pub(crate) origin: Origin,
}

impl Reference {
    /// The error of a reference to a service that does not exist.
    pub(crate) fn lost(&self) -> ConfigError {
        let to = &self.to;
        let message = format!("expected the name of a service, got {to:?}: there is none");
        self.origin.error(message)
    }
}

/// All problems of the references between `services`.
///
/// A reference comes with the index of the service that has it. The names in `unread` are services
/// too, of which nothing else is known.
pub(crate) fn check(
    services: &[&Written<Arc<Service>>],
    references: &[(usize, &Reference)],
    unread: &HashSet<&str>,
) -> Vec<ConfigError> {
    let mut graph = Graph::new(services);
    for (from, reference) in references {
        if !unread.contains(reference.to.as_str()) {
            graph.add(*from, reference);
        }
    }
    let levels = graph.levels();
    graph.find_circles(&levels);
    graph.find_depths(&levels);
    graph.errors
}

struct Graph<'a> {
    services: &'a [&'a Written<Arc<Service>>],
    by_name: HashMap<&'a str, usize>,
    /// For each service, the services that it falls back to, with the place of each reference.
    edges: Vec<Vec<(usize, &'a Origin)>>,
    errors: Vec<ConfigError>,
}

impl<'a> Graph<'a> {
    fn new(services: &'a [&'a Written<Arc<Service>>]) -> Self {
        let mut by_name = HashMap::new();
        for (index, service) in services.iter().enumerate() {
            by_name.entry(service.value.name.as_str()).or_insert(index);
        }
        Self {
            services,
            by_name,
            edges: vec![Vec::new(); services.len()],
            errors: Vec::new(),
        }
    }

    fn add(&mut self, from: usize, reference: &'a Reference) {
        let Reference { to, origin } = reference;
        let error = match self.by_name.get(to.as_str()) {
            Some(target) if *target == from => {
                format!("expected another service, got `{to}` itself")
            }
            Some(target) => {
                self.edges[from].push((*target, origin));
                return;
            }
            None => return self.errors.push(reference.lost()),
        };
        self.errors.push(origin.error(error));
    }

    /// The number of cluster levels from each service down; `None` for a service that leads into a
    /// circle. A file may chain any number of services, so this does not recurse.
    fn levels(&self) -> Vec<Option<usize>> {
        let mut users = vec![Vec::new(); self.edges.len()];
        for (user, edges) in self.edges.iter().enumerate() {
            for (used, _) in edges {
                users[*used].push(user);
            }
        }
        let mut open: Vec<usize> = self.edges.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..open.len()).filter(|i| open[*i] == 0).collect();
        let mut levels = vec![None; open.len()];
        while let Some(index) = ready.pop() {
            levels[index] = Some(self.level(index, &levels));
            for user in &users[index] {
                open[*user] -= 1;
                if open[*user] == 0 {
                    ready.push(*user);
                }
            }
        }
        levels
    }

    fn level(&self, index: usize, levels: &[Option<usize>]) -> usize {
        if !self.services[index].value.is_aggregate() {
            return 1;
        }
        let used = self.edges[index]
            .iter()
            .filter_map(|(used, _)| levels[*used]);
        // A service has a cluster of its own endpoints in any case.
        1 + used.max().unwrap_or(1)
    }

    /// Reports circles. Of circles that share a service one is reported, and the others after that
    /// one is mended.
    fn find_circles(&mut self, levels: &[Option<usize>]) {
        let mut walked = vec![false; levels.len()];
        for start in 0..levels.len() {
            let mut walk = Vec::new();
            let mut next = Some(start);
            while let Some(index) = next.filter(|i| levels[*i].is_none() && !walked[*i]) {
                walked[index] = true;
                walk.push(index);
                let mut used = self.edges[index].iter().map(|(used, _)| *used);
                next = used.find(|used| levels[*used].is_none());
            }
            // A service that an earlier walk met was reported, or leads to one that was.
            let first = next.and_then(|index| walk.iter().position(|i| *i == index));
            if let Some(first) = first {
                self.report_circle(&mut walk[first..]);
            }
        }
    }

    fn report_circle(&mut self, circle: &mut [usize]) {
        let first = (0..circle.len()).min_by_key(|i| circle[*i]).unwrap_or(0);
        circle.rotate_left(first);
        let [from, to, ..] = circle else { return };
        let edge = self.edges[*from].iter().find(|(used, _)| used == to);
        let Some((_, origin)) = edge else { return };
        let names: Vec<&str> = circle
            .iter()
            .chain(circle.first())
            .map(|i| self.name(*i))
            .collect();
        let names = names.join(" -> ");
        let error = origin.error(format!("expected no circle of fallbacks, got {names}"));
        self.errors.push(error);
    }

    /// Reports chains that are too long, each at the service where it becomes too long.
    fn find_depths(&mut self, levels: &[Option<usize>]) {
        for (index, level) in levels.iter().enumerate() {
            if *level != Some(MAX_DEPTH + 1) {
                continue;
            }
            let deepest = self.edges[index]
                .iter()
                .find(|(used, _)| levels[*used] == Some(MAX_DEPTH));
            let Some((_, origin)) = deepest else { continue };
            let message = format!(
                "expected at most {MAX_DEPTH} levels of clusters from `{}` down, got {}",
                self.name(index),
                MAX_DEPTH + 1
            );
            self.errors.push(origin.error(message));
        }
    }

    fn name(&self, index: usize) -> &'a str {
        &self.services[index].value.name
    }
}
