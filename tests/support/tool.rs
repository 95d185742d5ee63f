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

/// What a process has open or mapped below `directory`.
pub fn handles(pid: u32, directory: &Path) -> Vec<String> {
    let process = Path::new("/proc").join(pid.to_string());
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let open = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let open: Vec<String> = open.map(|path| path.display().to_string()).collect();
    let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| line[at..].to_owned()));
    let below = |path: &String| path.starts_with(&*directory.to_string_lossy());
    open.into_iter().chain(mapped).filter(below).collect()
}

/// Resident bytes of a process; 0 if it has ended.
pub fn resident(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most resident bytes that a process has had since [`forget_peak`]; 0 if it has ended.
pub fn peak(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Lets the peak of a process begin anew.
pub fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

fn memory(pid: u32, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(kind));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
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
