//! `crowfly node check` and `crowfly node clean`. They look at the machine itself and ask no agent,
//! because they are for a machine on which no agent runs.

#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{
    NodeError,
    command::{CheckArgs, CleanArgs},
};

#[cfg(not(target_os = "linux"))]
pub(super) fn check(_: &CheckArgs) -> Result<ExitCode, NodeError> {
    Err(NodeError::NotLinux)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn clean(_: &CleanArgs) -> Result<(), NodeError> {
    Err(NodeError::NotLinux)
}

/// The cgroup whose programs are routed.
#[cfg(target_os = "linux")]
pub(super) fn cgroup(given: Option<&Path>) -> Result<PathBuf, NodeError> {
    given
        .map(Path::to_owned)
        .or_else(crowfly_node::check::default_cgroup)
        .ok_or(NodeError::NoCgroup)
}

#[cfg(target_os = "linux")]
pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, NodeError> {
    use crate::output;

    // Without any, the finding names the usual place.
    let cgroup = cgroup(args.machine.cgroup.as_deref()).unwrap_or_else(|_| "/sys/fs/cgroup".into());
    let findings = crowfly_node::check::check(&cgroup, &args.machine.pins);
    if args.json {
        output::line(serde_json::to_string_pretty(&findings)?);
    } else {
        for finding in &findings {
            let mark = match (finding.ok, finding.needed) {
                (true, _) => "ok  ",
                (false, true) => "FAIL",
                (false, false) => "WARN",
            };
            output::line(format_args!(
                "{mark} {:<10} {}",
                finding.name,
                output::printable(&finding.found)
            ));
            if let Some(fix) = &finding.fix {
                output::line(format_args!("     {:<10} {fix}", ""));
            }
        }
    }
    Ok(
        match findings.iter().all(|finding| finding.ok || !finding.needed) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
    )
}

#[cfg(target_os = "linux")]
pub(super) fn clean(args: &CleanArgs) -> Result<(), NodeError> {
    use std::os::unix::net::UnixStream;

    use crate::output;

    let socket = &args.socket.socket;
    if UnixStream::connect(socket).is_ok() {
        return Err(NodeError::Running(socket.clone()));
    }
    let pins = &args.machine.pins;
    let removed = crowfly_node::maps::ebpf::clean(pins).map_err(NodeError::Clean)?;
    remove_socket(socket);
    if args.json {
        output::line(serde_json::json!({ "removed": removed }));
    } else {
        output::line(format_args!("{}: {removed} pins removed", pins.display()));
    }
    Ok(())
}

/// Removes the socket that a killed agent left, and the directory that an agent made for it. A directory that holds
/// something else stays.
#[cfg(target_os = "linux")]
fn remove_socket(socket: &Path) {
    use std::{fs, os::unix::fs::FileTypeExt};

    let found = fs::symlink_metadata(socket);
    // Another file at this path is none of an agent's.
    if found.is_ok_and(|found| found.file_type().is_socket()) {
        let _ = fs::remove_file(socket);
    }
    if let Some(directory) = socket.parent() {
        let _ = fs::remove_dir(directory);
    }
}
