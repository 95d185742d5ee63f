//! Cgroups as a container runtime makes them, where the kernel lets us.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where a hierarchy can be: unified, unified beside version 1, and version 1's lightest controller.
const ROOTS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A pod's container.
#[derive(Debug, Clone)]
pub struct Container {
    /// UID of the pod.
    pub pod_uid: String,
    /// Identifier of the container.
    pub id: String,
    /// The file that takes its processes.
    pub procs: PathBuf,
}

/// A tree of cgroups. Dropped, it is removed.
#[derive(Debug)]
pub struct Cgroups {
    made: Vec<PathBuf>,
    pods: u32,
}

impl Cgroups {
    /// A tree in the first hierarchy that can be written, if there is one.
    pub fn new() -> Option<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpmeter-tests-{}-{number}", std::process::id());
        // The root of version 1 holds its controllers' hierarchies and is none itself.
        let hierarchies = ROOTS.map(Path::new).into_iter().filter(|root| root.join("cgroup.procs").exists());
        let mut tops = hierarchies.map(|root| root.join(&name));
        tops.find(|top| fs::create_dir(top).is_ok()).map(|top| Self { made: vec![top], pods: 0 })
    }

    /// A container in the systemd driver's notation.
    pub fn systemd(&mut self) -> Container {
        let (uid, id) = self.identity();
        let pod = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        self.container(
            uid,
            &["kubepods.slice", "kubepods-burstable.slice", &pod],
            &format!("cri-containerd-{id}.scope"),
            &id,
        )
    }

    /// A container in the cgroupfs driver's.
    pub fn cgroupfs(&mut self) -> Container {
        let (uid, id) = self.identity();
        let pod = format!("pod{uid}");
        self.container(uid, &["kubepods", "burstable", &pod], &id, &id)
    }

    /// A container of a pod with this UID, in the systemd driver's notation.
    pub fn container_of(&mut self, pod_uid: &str) -> Container {
        let (_, id) = self.identity();
        let pod = format!("kubepods-besteffort-pod{}.slice", pod_uid.replace('-', "_"));
        let above = ["kubepods.slice", "kubepods-besteffort.slice", &pod];
        self.container(pod_uid.to_owned(), &above, &format!("cri-containerd-{id}.scope"), &id)
    }

    /// Where the tree begins.
    pub fn top(&self) -> &Path {
        &self.made[0]
    }

    /// Removes a container's cgroup, and its pod's with the last of them. Whether it is gone: while a process is in it
    /// it stays, and so it does for a moment after that was reaped.
    pub fn remove(&mut self, container: &Container) -> bool {
        let own = container.procs.parent().unwrap();
        for path in [own, own.parent().unwrap()] {
            if fs::remove_dir(path).is_ok() {
                self.made.retain(|made| made != path);
            }
        }
        !own.exists()
    }

    /// Removes what a container runtime has made of this tree in the other hierarchies of version 1.
    fn remove_beside(&self) {
        let name = self.top().file_name().unwrap();
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        for top in hierarchies.map(|hierarchy| hierarchy.path().join(name)).filter(|top| top != self.top()) {
            remove_tree(&top);
        }
    }

    fn identity(&mut self) -> (String, String) {
        self.pods += 1;
        let (process, pod) = (std::process::id(), self.pods);
        (format!("{process:08x}-0000-4000-8000-{pod:012x}"), format!("{process:032x}{pod:032x}"))
    }

    fn container(&mut self, pod_uid: String, above: &[&str], name: &str, id: &str) -> Container {
        let mut path = self.made[0].clone();
        for part in above.iter().chain([&name]) {
            path.push(part);
            if !path.exists() {
                fs::create_dir(&path).unwrap();
                self.made.push(path.clone());
            }
        }
        Container { pod_uid, id: id.to_owned(), procs: path.join("cgroup.procs") }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove_beside();
        for path in self.made.iter().rev() {
            // A process that was just reaped may be in its cgroup for a moment still.
            for _ in 0..100 {
                if fs::remove_dir(path).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Removes cgroups below `top`, and it; the files in them go with them.
fn remove_tree(top: &Path) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_tree(&entry.path());
    }
    // What is in use stays.
    drop(fs::remove_dir(top));
}

/// Entries of a file of pods: each with its one container and what it was granted.
pub fn pods(entries: &[(&str, &Container, &str)]) -> String {
    let one = |(name, container, device): &(&str, &Container, &str)| {
        let Container { pod_uid, id, .. } = container;
        format!(
            "[[pod]]\nuid = {pod_uid:?}\nnamespace = \"research\"\nname = {name:?}\n\
             containers = [{{ name = \"main\", id = {id:?}, devices = [{device:?}] }}]\n"
        )
    };
    entries.iter().map(one).collect()
}
