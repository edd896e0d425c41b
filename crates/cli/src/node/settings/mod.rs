//! The settings of an agent: each by a flag, by a variable of the environment, or in the file, and the
//! first of these counts.
//!
//! Each section is one type that clap and serde both read, so that no setting is missing in one of them.

mod kubernetes;
mod kvstore;
mod loads;
mod machine;
mod metrics;
mod order;
mod place;
mod value;
mod xds;

use std::path::Path;

use crowfly_node::{cidr::Cidr, file::Section, model::Place};
use crowfly_source::yaml::{ConfigError, Problem};
use serde::Deserialize;

pub(super) use kubernetes::KubernetesSettings;
pub(super) use kvstore::KvstoreSettings;
pub(super) use loads::LoadSettings;
pub(super) use machine::{MachineSettings, PINS, SOCKET};
pub(super) use metrics::MetricsSettings;
pub(super) use order::{SourceName, sort};
pub(super) use place::PlaceSettings;
pub(super) use value::Span;
pub(super) use xds::XdsSettings;

use super::{NodeArgs, NodeError};

/// The settings that a file has.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    node: PlaceSettings,
    sources: Option<Vec<SourceName>>,
    kubernetes: Option<KubernetesSettings>,
    kvstore: KvstoreSettings,
    xds: XdsSettings,
    machine: MachineSettings,
    loads: LoadSettings,
    metrics: MetricsSettings,
    start_timeout: Option<Span>,
}

const SECTIONS: &str = "services, node, sources, kubernetes, kvstore, xds, machine, load_reports, metrics, start_timeout";

impl FileSettings {
    /// Reads the settings of a file, as far as they are right, and tells what is wrong with the others.
    pub(super) fn read(file: &Path, sections: &[Section]) -> (Self, Vec<ConfigError>) {
        let mut settings = Self::default();
        let mut errors = Vec::new();
        for section in sections {
            let result = match section.key.text.as_str() {
                "node" => take(&mut settings.node, section),
                "sources" => take(&mut settings.sources, section),
                "kubernetes" => take(&mut settings.kubernetes, section),
                "kvstore" => take(&mut settings.kvstore, section),
                "xds" => take(&mut settings.xds, section),
                "machine" => take(&mut settings.machine, section),
                "load_reports" => take(&mut settings.loads, section),
                "metrics" => take(&mut settings.metrics, section),
                "start_timeout" => take(&mut settings.start_timeout, section),
                _ => Err(Problem {
                    at: Some(section.key.at),
                    path: section.key.text.clone(),
                    message: format!("unknown field, expected one of {SECTIONS}"),
                }),
            };
            errors.extend(result.err().map(|problem| ConfigError {
                file: file.to_owned(),
                at: problem.at,
                path: problem.path,
                message: problem.message,
            }));
        }
        (settings, errors)
    }
}

/// Tells what is wrong with the settings of a file.
pub(super) fn check(file: &Path, sections: &[Section]) -> Vec<ConfigError> {
    FileSettings::read(file, sections).1
}

fn take<'a, T: Deserialize<'a>>(to: &mut T, section: &'a Section) -> Result<(), Problem> {
    *to = section.value.read(&section.key.text)?;
    Ok(())
}

/// The settings that are in force.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) pod_cidrs: Vec<Cidr>,
    /// The order of sources, if one is given.
    pub(super) order: Option<Vec<SourceName>>,
    pub(super) kubernetes: KubernetesSettings,
    pub(super) kvstore: KvstoreSettings,
    pub(super) xds: XdsSettings,
    pub(super) machine: MachineSettings,
    pub(super) loads: LoadSettings,
    pub(super) metrics: MetricsSettings,
    pub(super) start_timeout: Option<Span>,
}

impl Settings {
    /// The settings of flags and environment. The file gives those that are absent there.
    pub(super) fn new(args: &NodeArgs, file: FileSettings) -> Self {
        let kubernetes = file.kubernetes.map(KubernetesSettings::switched_on);
        let (place, pod_cidrs) = args.place.clone().or(file.node).into_place();
        Self {
            place,
            pod_cidrs,
            order: args.sources.clone().or(file.sources),
            kubernetes: args.kubernetes.clone().or(kubernetes.unwrap_or_default()),
            kvstore: args.kvstore.clone().or(file.kvstore),
            xds: args.xds.clone().or(file.xds),
            machine: args.machine.clone().or(file.machine),
            loads: args.loads.clone().or(file.loads),
            metrics: args.metrics.or(file.metrics),
            start_timeout: args.start_timeout.or(file.start_timeout),
        }
    }

    /// Refuses settings that would do nothing without others.
    pub(super) fn check(&self) -> Result<(), NodeError> {
        if !self.pod_cidrs.is_empty() && self.place.node.is_none() {
            let message = "pod_cidrs are given, expected name (--node-name) with them, because endpoints in them are on \
                           the node of that name";
            return Err(NodeError::Setting("node", message.to_owned()));
        }
        let loads = &self.loads;
        let has_server = loads.server.is_some() || loads.bootstrap.is_some() || self.xds.is_on();
        if loads.all == Some(true) && !has_server {
            let message = "all is given, expected a server for the reports with it: --load-report-server, \
                           --load-report-bootstrap or an xDS source";
            return Err(NodeError::Setting("load_reports", message.to_owned()));
        }
        Ok(())
    }
}
