//! The links that hold our programs at the hooks of a cgroup.
//!
//! Links are pinned, because the programs must stay attached while no agent runs. The program of a pinned link is
//! replaced in one step, because an upgrade must leave no moment without a program.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use tracing::info;

use super::pins::remove;
use super::{InstallError, PROGRAMS, failed, sys};

/// The programs, where they are attached, and where their links are pinned.
pub(super) struct Links {
    cgroup: File,
    cgroup_path: PathBuf,
    directory: PathBuf,
    /// Each program with its name and its hook.
    programs: Vec<(&'static str, u32, Attached)>,
}

/// A program in the kernel.
struct Attached {
    id: u32,
    fd: OwnedFd,
}

impl Links {
    /// Attaches all programs of an object to a cgroup.
    pub(super) fn attach(
        ebpf: &Ebpf,
        cgroup: File,
        cgroup_path: &Path,
        directory: PathBuf,
    ) -> Result<Self, InstallError> {
        let mut links = Self {
            cgroup,
            cgroup_path: cgroup_path.to_owned(),
            directory,
            programs: Vec::new(),
        };
        for (name, hook) in PROGRAMS {
            let program = program_of(ebpf, name)?;
            links.attach_one(name, &program, hook)?;
            links.programs.push((name, hook, program));
        }
        Ok(links)
    }

    /// Attaches the programs that are not attached any more, and returns their names. A link may be there and have
    /// another program.
    pub(super) fn attach_again(&self) -> Result<Vec<&'static str>, InstallError> {
        let mut repaired = Vec::new();
        for (name, hook, program) in &self.programs {
            let link = sys::open_pin(&self.directory.join(name));
            let found = link.and_then(|link| sys::link_info(link.as_fd()));
            if let (Ok(found), Ok(cgroup)) = (found, self.id())
                && (found.cgroup, found.program) == (cgroup, program.id)
            {
                continue;
            }
            // Whoever removed the pins may have removed their directory.
            fs::create_dir_all(&self.directory)
                .map_err(|source| failed(&self.directory, "cannot make the directory", source))?;
            self.attach_one(name, program, *hook)?;
            repaired.push(*name);
        }
        Ok(repaired)
    }

    /// The number of the cgroup.
    fn id(&self) -> io::Result<u64> {
        Ok(self.cgroup.metadata()?.ino())
    }

    /// Gives a hook of the cgroup this program: by the link that is pinned already, or by a new one.
    fn attach_one(&self, name: &str, program: &Attached, hook: u32) -> Result<(), InstallError> {
        let (pin, cgroup_path) = (&self.directory.join(name), &self.cgroup_path);
        let id = self.id();
        let id = id.map_err(|source| failed(cgroup_path, "cannot read the cgroup", source))?;
        if let Ok(link) = sys::open_pin(pin) {
            let found = sys::link_info(link.as_fd());
            if found.is_ok_and(|found| found.cgroup == id) {
                return sys::update_link(link.as_fd(), program.fd.as_fd())
                    .map_err(|source| failed(pin, "cannot replace the program", source));
            }
            info!("{}: its cgroup is another one or gone", pin.display());
        }
        let link = sys::create_link(program.fd.as_fd(), self.cgroup.as_fd(), hook)
            .map_err(|source| failed(cgroup_path, "cannot attach a program", source))?;
        remove(pin).map_err(|source| failed(pin, "cannot remove the pin", source))?;
        sys::pin(link.as_fd(), pin).map_err(|source| failed(pin, "cannot pin a link", source))
    }
}

fn program_of(ebpf: &Ebpf, name: &'static str) -> Result<Attached, InstallError> {
    let program = ebpf.program(name).ok_or(InstallError::Missing(name))?;
    let wrong = |source| InstallError::Program {
        name,
        source: Box::new(source),
    };
    let id = program.info().map_err(wrong)?.id();
    let fd = program.fd().map_err(wrong)?.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|source| failed(Path::new(name), "cannot use the program", source))?;
    Ok(Attached { id, fd })
}
