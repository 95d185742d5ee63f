//! What the cgroups of pods say of how long their threads were held up: pressure, where a unified hierarchy counts it,
//! and throttling by CPU limits, under either version.
//!
//! Cgroups are found by walking the hierarchies, not by the paths of processes: these are cut where this process has a
//! cgroup namespace of its own. All of this is readable without privilege.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use warpmeter_core::fact::Fact;
use warpmeter_core::identity::{PodUid, Scope};
use warpmeter_core::pressure::{Pressure, Resource, Throttled};
use warpmeter_core::time::{MonoNs, SECOND};

use super::directory::{self, Unread};
use super::path;

/// How often a pod's cgroups are read.
const EVERY: u64 = 5 * SECOND;
/// How long after a walk that missed a pod the next may be; doubled with each one that does, up to [`RARELY`].
const AGAIN: u64 = 10 * SECOND;
/// How long it is at most.
const RARELY: u64 = 320 * SECOND;
/// How many directories of a hierarchy a walk looks at.
const DIRECTORIES: usize = 4096;
/// How deep it goes: nodes of test clusters are containers themselves.
const DEPTH: usize = 10;
/// How many containers of a pod are looked at.
const CONTAINERS: usize = 64;
/// Longer than any file that is read here.
const FILE: usize = 4096;

/// Reads the cgroups of pods.
#[derive(Debug)]
pub(super) struct Pressures {
    root: PathBuf,
    /// Where a pod's cgroups are, from the root: in the unified hierarchy, and in that of version 1 that limits CPUs.
    places: BTreeMap<PodUid, Places>,
    due: BTreeMap<PodUid, MonoNs>,
    /// Pods that the last walk has not found.
    missed: BTreeSet<PodUid>,
    walk_at: MonoNs,
    pause: u64,
    text: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
}

/// A pod's directories, from the root of all hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Places {
    unified: Option<String>,
    cpu: Option<String>,
}

impl Pressures {
    /// A reader of the hierarchies below `root`. Opens nothing.
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            places: BTreeMap::new(),
            due: BTreeMap::new(),
            missed: BTreeSet::new(),
            walk_at: MonoNs(0),
            pause: AGAIN,
            text: vec![0; FILE],
            entries: vec![MaybeUninit::uninit(); 8 * 1024],
        }
    }

    /// Appends what the cgroups of those of `pods` say that are due.
    pub(super) fn poll(&mut self, pods: &BTreeSet<PodUid>, now: MonoNs, out: &mut Vec<Fact>) {
        self.places.retain(|pod, _| pods.contains(pod));
        self.due.retain(|pod, _| pods.contains(pod));
        let due: Vec<PodUid> =
            pods.iter().filter(|pod| self.due.get(*pod).is_none_or(|due| *due <= now)).cloned().collect();
        if due.is_empty() {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(root) = rustix::fs::openat(CWD, &self.root, flags, Mode::empty()) else { return };
        self.find(&root, pods, now);
        for pod in due {
            self.due.insert(pod.clone(), now.plus(EVERY));
            let Some(places) = self.places.get(&pod).cloned() else { continue };
            match self.read(&root, &pod, &places) {
                Some(pressure) => out.push(Fact::Pressure(pressure)),
                // It was moved, or ends.
                None => drop(self.places.remove(&pod)),
            }
        }
    }

    /// Walks the hierarchies if a pod's place is not known, at most every so often for the same ones.
    fn find(&mut self, root: &OwnedFd, pods: &BTreeSet<PodUid>, now: MonoNs) {
        let lost: BTreeSet<PodUid> =
            pods.iter().filter(|pod| !self.places.contains_key(*pod)).cloned().collect();
        if lost.is_empty() || (lost.is_subset(&self.missed) && now < self.walk_at) {
            return;
        }
        for hierarchy in hierarchies(root) {
            let mut found = Vec::new();
            self.walk(root, hierarchy.directory, &lost, &mut found);
            for (pod, path) in found {
                let places = self.places.entry(pod).or_default();
                let place = if hierarchy.unified { &mut places.unified } else { &mut places.cpu };
                place.get_or_insert(path);
            }
        }
        let missed: BTreeSet<PodUid> =
            lost.into_iter().filter(|pod| !self.places.contains_key(pod)).collect();
        self.pause = if missed.is_subset(&self.missed) { (self.pause * 2).min(RARELY) } else { AGAIN };
        self.missed = missed;
        self.walk_at = now.plus(self.pause);
    }

    /// Finds the directories of `pods` below `top`, level by level.
    fn walk(
        &mut self,
        root: &OwnedFd,
        top: &str,
        pods: &BTreeSet<PodUid>,
        found: &mut Vec<(PodUid, String)>,
    ) {
        let mut level = vec![String::new()];
        let mut left = DIRECTORIES;
        for _ in 0..DEPTH {
            let mut below = Vec::new();
            for path in std::mem::take(&mut level) {
                let Some(rest) = left.checked_sub(1) else { return };
                left = rest;
                let Ok(directory) = directory::open(root, &format!("{top}{path}")) else { continue };
                for name in self.directories(&directory) {
                    let path = format!("{path}/{name}");
                    match path::scope(&path) {
                        Scope::Pod { uid, container: None } => {
                            if pods.contains(&uid) && !found.iter().any(|(pod, _)| *pod == uid) {
                                found.push((uid, format!("{top}{path}")));
                            }
                        }
                        // One name that is a pod's and its container's: there is no cgroup of the pod.
                        Scope::Pod { container: Some(_), .. } => {}
                        _ => below.push(path),
                    }
                }
                if found.len() == pods.len() {
                    return;
                }
            }
            level = below;
        }
    }

    fn directories(&mut self, directory: &OwnedFd) -> Vec<String> {
        let mut names = Vec::new();
        let read = directory::directories(directory, &mut self.entries, |name| {
            names.push(name.to_owned());
            names.len() < DIRECTORIES
        });
        // Of a directory that ends meanwhile nothing is left.
        if read.is_err() {
            names.clear();
        }
        names
    }

    /// Reads a pod's cgroups; none if none of them is there.
    fn read(&mut self, root: &OwnedFd, pod: &PodUid, places: &Places) -> Option<Pressure> {
        let mut pressure =
            Pressure { pod: pod.clone(), waited: [None; Resource::COUNT], throttled: Vec::new() };
        let mut there = false;
        if let Some(directory) = places.unified.as_ref().and_then(|path| directory::open(root, path).ok()) {
            there = true;
            for (resource, waited) in Resource::ALL.into_iter().zip(&mut pressure.waited) {
                *waited = self.value(&directory, &format!("{}.pressure", resource.label()), waited_of);
            }
            self.throttling(&directory, &mut pressure.throttled);
        }
        if let Some(directory) = places.cpu.as_ref().and_then(|path| directory::open(root, path).ok()) {
            there = true;
            // The controller is in one hierarchy: in the other there is no such count.
            self.throttling(&directory, &mut pressure.throttled);
        }
        pressure.throttled.sort();
        pressure.throttled.dedup_by(|one, before| one.container == before.container);
        there.then_some(pressure)
    }

    /// Throttling of a pod's cgroup and of those of its containers.
    fn throttling(&mut self, pod: &OwnedFd, out: &mut Vec<Throttled>) {
        if let Some(nanos) = self.value(pod, "cpu.stat", throttled_of) {
            out.push(Throttled { container: None, nanos });
        }
        for name in self.directories(pod).into_iter().take(CONTAINERS) {
            let Some(container) = path::container_of_pod(&name) else { continue };
            if let Some(nanos) = self.value(pod, &format!("{name}/cpu.stat"), throttled_of) {
                out.push(Throttled { container: Some(container), nanos });
            }
        }
    }

    fn value(&mut self, at: impl AsFd, name: &str, parse: fn(&str) -> Option<u64>) -> Option<u64> {
        let text: Result<&[u8], Unread> = directory::read(at, name, &mut self.text);
        parse(std::str::from_utf8(text.ok()?).ok()?)
    }
}

/// A hierarchy that counts something.
struct Hierarchy {
    /// From the root of all.
    directory: &'static str,
    unified: bool,
}

/// The hierarchies that there are: the unified one alone or beside others, and that of version 1 that limits CPUs.
fn hierarchies(root: &OwnedFd) -> impl Iterator<Item = Hierarchy> {
    const CANDIDATES: [(&str, &str, bool); 3] = [
        (".", "cgroup.controllers", true),
        ("unified", "cgroup.controllers", true),
        ("cpu", "cgroup.clone_children", false),
    ];
    CANDIDATES.into_iter().filter_map(move |(directory, mark, unified)| {
        let at = directory::open(root, directory).ok()?;
        let there = rustix::fs::statat(&at, mark, AtFlags::empty()).is_ok();
        there.then_some(Hierarchy { directory, unified })
    })
}

/// Nanoseconds in which some thread waited, of the text of a pressure file: microseconds after `total=` in its line
/// `some`.
fn waited_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let micros = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
    micros.parse::<u64>().ok()?.checked_mul(1000)
}

/// Nanoseconds of throttling, of the text of `cpu.stat`: `throttled_usec` (version 2) or `throttled_time` (version 1,
/// nanoseconds).
fn throttled_of(text: &str) -> Option<u64> {
    let value = |key: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        rest.trim_end().parse::<u64>().ok()
    };
    value("throttled_usec").and_then(|micros| micros.checked_mul(1000)).or_else(|| value("throttled_time"))
}

#[cfg(test)]
mod tests;
