//! Cgroups like those in which containerd puts a pod's processes, where that is permitted.

use std::fs;
use std::path::{Path, PathBuf};

/// The name of the top one; nothing else of the node is under it.
const TOP: &str = "warpmeter-demo-kubepods.slice";

/// Where a hierarchy can be: unified, unified beside version 1, and version 1's lightest controller.
const ROOTS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];

/// The cgroups of the demo's pods. Dropped, they are removed.
#[derive(Debug)]
pub(crate) struct Cgroups {
    root: PathBuf,
    made: Vec<PathBuf>,
}

impl Cgroups {
    /// Finds a hierarchy in which cgroups can be made; otherwise says why there is none.
    pub(crate) fn new() -> Result<Self, String> {
        let mut reasons = Vec::new();
        for root in ROOTS.map(Path::new) {
            // The root of version 1 holds its controllers' hierarchies and is none itself.
            if !root.join("cgroup.procs").exists() {
                continue;
            }
            sweep(root);
            let top = root.join(format!("{TOP}-{}", std::process::id()));
            match fs::create_dir(&top) {
                Ok(()) => return Ok(Self { root: top.clone(), made: vec![top] }),
                Err(error) => reasons.push(format!("{}: {error}", top.display())),
            }
        }
        if reasons.is_empty() {
            reasons.push("no cgroup hierarchy is mounted under /sys/fs/cgroup".into());
        }
        Err(reasons.join("; "))
    }

    /// Makes a container's cgroup and gives the file that takes its processes.
    pub(crate) fn container(&mut self, uid: &str, container: &str) -> std::io::Result<PathBuf> {
        let pod = self.root.join(format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_")));
        let scope = pod.join(format!("cri-containerd-{container}.scope"));
        for directory in [pod, scope.clone()] {
            fs::create_dir(&directory)?;
            self.made.push(directory);
        }
        Ok(scope.join("cgroup.procs"))
    }
}

/// Removes the cgroups of demos that were killed: empty ones, as the processes in them have ended too.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(TOP)?.strip_prefix('-')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

/// Removes a cgroup and those in it, as far as they are empty.
fn remove(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(directory).unwrap_or_default();
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for directory in self.made.iter().rev() {
            // A process that has just been reaped may be in its cgroup for a moment still.
            for _ in 0..50 {
                if fs::remove_dir(directory).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
