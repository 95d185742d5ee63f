//! Looking at the machine.

use std::path::{Path, PathBuf};

/// A program on the search path, if it is installed.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Says that a test proves nothing here.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// The direct children of a process; those that have ended and wait to be reaped included.
pub fn children(pid: u32) -> Vec<u32> {
    let parent = pid.to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|stat| stat.get(1) == Some(&parent))).collect()
}

/// Whether a process exists and has not ended.
pub fn runs(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.first().is_some_and(|state| state != "Z" && state != "X"))
}

/// Whether a process has ended and was not reaped.
pub fn is_zombie(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.first().is_some_and(|state| state == "Z"))
}

/// How many files a process has open.
pub fn open_files(pid: u32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap().count()
}

/// `/proc/PID/stat` from the state on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}
