//! Ten thousand services in files, and the next version of one of them.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use crowfly_control::ConfigFile;
use tempfile::TempDir;

/// The way services are spread over files.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    OneFile,
    FileEach,
}

impl Layout {
    pub(crate) fn title(self, services: usize) -> String {
        match self {
            Self::OneFile => format!("{services} services in one file"),
            Self::FileEach => format!("{services} services in {services} files"),
        }
    }
}

/// A directory of configuration files.
pub(crate) struct Fleet {
    dir: TempDir,
    layout: Layout,
    /// The version of each service: its first endpoint's port.
    versions: Vec<usize>,
}

impl Fleet {
    pub(crate) fn new(services: usize, layout: Layout) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("config")).unwrap();
        fs::create_dir(dir.path().join("next")).unwrap();
        let fleet = Self {
            dir,
            layout,
            versions: vec![0; services],
        };
        match layout {
            Layout::OneFile => fs::write(fleet.config(), fleet.whole()).unwrap(),
            Layout::FileEach => {
                for index in 0..services {
                    fs::write(fleet.file_of(index), fleet.alone(index)).unwrap();
                }
            }
        }
        fleet
    }

    /// The file or the directory to serve.
    pub(crate) fn config(&self) -> PathBuf {
        let config = self.dir.path().join("config");
        match self.layout {
            Layout::OneFile => config.join("mesh.yaml"),
            Layout::FileEach => config,
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        (0..self.versions.len()).map(name).collect()
    }

    pub(crate) fn files(&self) -> Vec<ConfigFile> {
        let read = |path: PathBuf| ConfigFile {
            text: fs::read_to_string(&path).unwrap(),
            path,
        };
        match self.layout {
            Layout::OneFile => vec![read(self.config())],
            Layout::FileEach => {
                let all = 0..self.versions.len();
                all.map(|index| read(self.file_of(index))).collect()
            }
        }
    }

    /// Writes the next version of a service beside the directory.
    pub(crate) fn prepare(&mut self, index: usize, version: usize) -> Ready {
        self.versions[index] = version + 1;
        let from = self.dir.path().join("next").join("mesh.yaml");
        let (to, text) = match self.layout {
            Layout::OneFile => (self.config(), self.whole()),
            Layout::FileEach => (self.file_of(index), self.alone(index)),
        };
        fs::write(&from, text).unwrap();
        Ready { from, to }
    }

    fn file_of(&self, index: usize) -> PathBuf {
        self.config().join(format!("{}.yaml", name(index)))
    }

    fn whole(&self) -> String {
        let mut text = String::from("services:\n");
        for index in 0..self.versions.len() {
            self.write_service(index, &mut text);
        }
        text
    }

    fn alone(&self, index: usize) -> String {
        let mut text = String::from("services:\n");
        self.write_service(index, &mut text);
        text
    }

    fn write_service(&self, index: usize, text: &mut String) {
        let port = 1_000 + self.versions[index];
        let (a, b) = (index / 250, index % 250);
        write!(
            text,
            "- name: {}
  localities:
  - {{ region: eu, zone: a, weight: 3, endpoints: [{{ address: \"10.{a}.{b}.1:{port}\" }}, {{ address: \"10.{a}.{b}.2:80\" }}] }}
  - {{ region: eu, zone: b, weight: 2, endpoints: [{{ address: \"10.{a}.{b}.3:80\" }}] }}
",
            name(index)
        )
        .unwrap();
    }
}

/// A file that waits to take its place.
pub(crate) struct Ready {
    from: PathBuf,
    to: PathBuf,
}

impl Ready {
    pub(crate) fn rename(self) {
        fs::rename(self.from, self.to).unwrap();
    }
}

fn name(index: usize) -> String {
    format!("service-{index:05}")
}
