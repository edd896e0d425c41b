//! Checks a configuration without serving it, as its clients would read it. `crowfly validate`
//! needs it, and programs that check a file before they replace another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crowfly_model::FieldError;
use crowfly_source::Event;
use crowfly_source::files::Document;
use crowfly_source::yaml::{ConfigError, ConfigErrors};
use crowfly_xds::Snapshot;

use crate::agents::AgentView;
use crate::catalog::{DefinitionKind, Locator};
use crate::client_kind::Family;
use crate::door::{Maker, Refused};
use crate::sources::Configuration;
use crate::store::Desired;
use crate::translate::ResourceKey;
use crate::translator::Translator;
use crate::views::{OverlaidView, ServedView};

/// Reads a configuration as [`ControlPlane::start`](crate::ControlPlane::start) would. It is as if
/// [`Options::force`](crate::Options::force) was set, so that all refusals of clients are listed.
///
/// # Errors
/// All problems of all files, if there are any.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let file = directory.path().join("mesh.yaml");
/// std::fs::write(&file, "services: [{ name: payments }]")?;
/// let checked = crowfly_control::check(&file, false)?;
/// assert_eq!(checked.counts().resources.len(), 4);
/// assert!(checked.warnings().is_empty());
/// assert!(checked.refused_by_grpc().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(config: &Path, allow_empty: bool) -> Result<Checked, ConfigErrors> {
    let configuration = Configuration::new(config.to_owned(), allow_empty, true);
    let events = match configuration.read_now() {
        Ok(documents) => documents
            .into_iter()
            .map(|(path, document)| Event::Upsert(path, document))
            .collect(),
        Err(reason) => vec![Event::Failed(reason)],
    };
    Checked::read(configuration, events)
}

/// Checks a text as [`check`] does a file. Problems show `name` as its path.
///
/// # Errors
/// All problems of the text, if there are any.
///
/// ```
/// let errors = crowfly_control::check_text("stdin".as_ref(), "services: [{}]", false).unwrap_err();
/// assert_eq!(errors.to_string(), "stdin:1:12: services[0]: expected a field `name`");
/// ```
pub fn check_text(name: &Path, text: &str, allow_empty: bool) -> Result<Checked, ConfigErrors> {
    let configuration = Configuration::new(name.to_owned(), allow_empty, true);
    let event = Event::Upsert(name.to_owned(), Document::Text(text.into()));
    Checked::read(configuration, vec![event])
}

/// A configuration that can be read, and the findings about it.
#[derive(Debug)]
pub struct Checked {
    configuration: Configuration,
    desired: Desired,
}

/// A problem that a kind of client has with a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientProblem {
    /// The problem, with the words of the client.
    pub problem: ConfigError,
    /// The weight of the problem.
    pub severity: Severity,
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The control plane does not serve it, or its clients refuse it.
    Error,
    /// The control plane serves it all the same, and it may be a mistake.
    Warning,
    /// A client would refuse it, but the resource looks as if it is for others.
    Note,
}

/// The size of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services of the base.
    pub services: usize,
    /// Views.
    pub views: usize,
    /// Resources of the base by type URL.
    pub resources: BTreeMap<String, usize>,
    /// Resources of the base that gRPC clients can come to.
    pub for_grpc: usize,
}

/// The resources that node agents are served.
#[derive(Clone, Debug)]
pub struct ForAgents {
    /// The view of these agents; `None` for the base.
    pub view: Option<Arc<str>>,
    /// True if no other clients are served the view.
    pub is_theirs_alone: bool,
    /// The resources, in the form of agents.
    pub snapshot: Arc<Snapshot>,
}

impl Checked {
    fn read(
        mut configuration: Configuration,
        events: Vec<Event<std::path::PathBuf, Document>>,
    ) -> Result<Self, ConfigErrors> {
        let desired = configuration.follow(events)?;
        Ok(Self {
            configuration,
            desired,
        })
    }

    /// The resources of the base.
    pub fn snapshot(&self) -> &Snapshot {
        &self.desired.snapshot
    }

    /// References to resources that do not exist, and what views add, each with the place of its definition.
    pub fn warnings(&self) -> Vec<ConfigError> {
        let (translator, config) = (self.translator(), self.configuration.path());
        let warnings = translator.lost_references();
        warnings
            .map(|warning| translator.placed(warning, config))
            .collect()
    }

    /// The resources that gRPC clients refuse. It is an error if one can come to the resource, unless the resource
    /// says `force: true`.
    pub fn refused_by_grpc(&self) -> Vec<ClientProblem> {
        let translator = self.translator();
        let unreached = translator.unreached();
        let mut locator = Locator::new(translator.catalog());
        let all = translator.refused().iter().chain(&unreached);
        let problems = all.flat_map(|of| {
            let severity = severity_of(of);
            let problems = of.problems(&mut locator).into_iter();
            problems.map(move |problem| ClientProblem { problem, severity })
        });
        problems.collect()
    }

    /// The resources that node agents are served, of the base and of each view that is for agents.
    pub fn for_agents(&self) -> Vec<ForAgents> {
        let base = Arc::new(self.desired.snapshot.clone());
        let of_base = ForAgents {
            view: None,
            is_theirs_alone: false,
            snapshot: AgentView::default().follow(&base),
        };
        let views = self.desired.views.iter();
        let views = views.filter(|view| view.matches.admits(Family::Node));
        let views = views.map(|view: &ServedView| {
            let laid = OverlaidView::new(&base, &view.overlay);
            let others = [Family::Envoy, Family::Grpc];
            ForAgents {
                view: Some(Arc::clone(&view.name)),
                is_theirs_alone: !others.iter().any(|of| view.matches.admits(*of)),
                snapshot: AgentView::default().follow(laid.snapshot()),
            }
        });
        [of_base].into_iter().chain(views).collect()
    }

    /// A problem of a resource, with the place of the field. `view` is the view whose clients have the problem. The
    /// fields of a service are not those of xDS, so a problem there has the place of the service.
    pub fn problem(
        &self,
        view: Option<&str>,
        (type_url, name): (&str, &str),
        error: &FieldError,
        says: &str,
    ) -> ConfigError {
        let translator = self.translator();
        let key = ResourceKey::new(type_url, name.into());
        let Some((origin, maker)) = translator.maker(view, &key) else {
            let message = format!("{says}: `{name}` of type {type_url}: {error}");
            return ConfigError::of_file(self.configuration.path(), message);
        };
        let Maker::Raw { is_nested, .. } = maker else {
            return origin.error(format!("{says}: {error}"));
        };
        let mut locator = Locator::new(translator.catalog());
        locator.problem(&origin, is_nested, error, says)
    }

    /// The size of the configuration.
    pub fn counts(&self) -> Counts {
        let translator = self.translator();
        let count = |wanted: &DefinitionKind| {
            let kinds = translator.catalog().keys().map(|key| key.kind());
            kinds.filter(|kind| *kind == wanted).count()
        };
        let snapshot = &self.desired.snapshot;
        let resources = snapshot.types();
        let resources = resources.map(|(url, of)| (url.to_owned(), of.resources().len()));
        let reachable = translator.references().reachable();
        let exists = |key: &&ResourceKey| snapshot.resource(&key.type_url, &key.name).is_some();
        Counts {
            services: count(&DefinitionKind::Service),
            views: count(&DefinitionKind::View),
            resources: resources.filter(|(_, count)| *count > 0).collect(),
            for_grpc: reachable.iter().filter(exists).count(),
        }
    }

    fn translator(&self) -> &Translator {
        self.configuration.translator()
    }
}

fn severity_of(refused: &Refused) -> Severity {
    if refused.listener.is_none() {
        Severity::Note
    } else if refused.refusal.is_forced() {
        Severity::Warning
    } else {
        Severity::Error
    }
}
