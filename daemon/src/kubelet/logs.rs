//! UIDs of pods and identifiers of containers, from the names that the kubelet gives to logs.
//!
//! A pod's logs are in `NAMESPACE_POD_UID`, made before its first container and removed with the pod; static pods have
//! the hash of their configuration for a UID there, as in the names of their cgroups. A container that has started has
//! a link `POD_NAMESPACE_CONTAINER-ID.log` to its log, unless its runtime writes none. No log is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use warpmeter_core::identity::{ContainerId, PodUid};

use super::mapping::PodName;
use super::options::KubeletOptions;
use super::schedule::Stamp;

/// A container's name and identifier.
pub(super) type Named = (Arc<str>, ContainerId);

/// What the names of logs tell.
#[derive(Debug)]
pub(super) struct Logs {
    pods: Directory,
    containers: Directory,
    newest: Latest,
    linked: Latest,
    named: BTreeMap<PodUid, BTreeSet<Named>>,
}

/// The pods that have had a name, and which of them came last.
///
/// Those that a reading finds came after those that were there at an earlier one. Between those that it finds together,
/// as at the start, only the wall clock's time of their making decides, and a clock that was set back in between tells
/// it wrong until the older one's logs are gone. Nothing else that a directory has tells more: inodes are used again.
#[derive(Debug, Default)]
struct Latest {
    /// All of a name, the newest last.
    uids: BTreeMap<PodName, Vec<PodUid>>,
    reading: u64,
    /// In which reading each was found first.
    first: BTreeMap<PodUid, u64>,
}

impl Latest {
    /// Takes what is there now, and when it was made.
    fn read(&mut self, found: impl IntoIterator<Item = (PodName, PodUid, SystemTime)>) {
        self.reading += 1;
        let mut first = BTreeMap::new();
        let mut all: BTreeMap<PodName, BTreeSet<(u64, SystemTime, PodUid)>> = BTreeMap::new();
        for (name, uid, made) in found {
            let reading = self.first.get(&uid).copied().unwrap_or(self.reading);
            first.insert(uid.clone(), reading);
            all.entry(name).or_default().insert((reading, made, uid));
        }
        self.first = first;
        let uids = |all: BTreeSet<(u64, SystemTime, PodUid)>| all.into_iter().map(|(.., uid)| uid).collect();
        self.uids = all.into_iter().map(|(name, all)| (name, uids(all))).collect();
    }

    /// All of a name, the newest last.
    fn of(&self, name: &PodName) -> &[PodUid] {
        self.uids.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A directory, and what came of reading it last.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
    stamp: Option<Stamp>,
    unread: Option<String>,
}

impl Directory {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), stamp: None, unread: None }
    }

    fn has_changed(&self) -> bool {
        Stamp::of(&self.path).ok() != self.stamp
    }

    /// The names in it; nothing if it cannot be read, which says nothing about what was in it.
    fn entries(&mut self) -> Option<Vec<std::fs::DirEntry>> {
        // Before the list: what comes later is noticed then.
        let stamp = Stamp::of(&self.path);
        self.stamp = stamp.as_ref().ok().copied();
        let listed = stamp.and_then(|_| std::fs::read_dir(&self.path)?.collect::<Result<Vec<_>, _>>());
        match listed {
            Ok(entries) => {
                self.unread = None;
                Some(entries)
            }
            Err(error) => {
                self.unread = Some(format!("{}: {error}", self.path.display()));
                None
            }
        }
    }
}

impl Logs {
    pub(super) fn new(options: &KubeletOptions) -> Self {
        Self {
            pods: Directory::new(&options.pod_logs),
            containers: Directory::new(&options.container_logs),
            newest: Latest::default(),
            linked: Latest::default(),
            named: BTreeMap::new(),
        }
    }

    /// Whether pods have come or gone since the last [`Self::read`].
    pub(super) fn pods_changed(&self) -> bool {
        self.pods.has_changed()
    }

    /// Whether pods or containers have come or gone since the last [`Self::read`].
    pub(super) fn changed(&self) -> bool {
        self.pods.has_changed() || self.containers.has_changed()
    }

    /// The UID of the pod that has `name`: of several the one that came last.
    pub(super) fn uid(&self, name: &PodName) -> Option<&PodUid> {
        self.uids(name).last()
    }

    /// All pods that have `name` and still have logs, the newest last.
    pub(super) fn uids(&self, name: &PodName) -> &[PodUid] {
        let found = self.newest.of(name);
        if found.is_empty() { self.linked.of(name) } else { found }
    }

    /// Whether a pod still has a directory of logs, which is removed with it. Links can be left over, and count only
    /// where directories cannot be read.
    pub(super) fn has(&self, uid: &PodUid) -> bool {
        let linked = || self.pods.unread.is_some() && self.linked.first.contains_key(uid);
        self.newest.first.contains_key(uid) || linked()
    }

    /// All containers that a pod has had so far and still has logs of, also those that the kubelet does not list.
    pub(super) fn containers(&self, uid: &PodUid) -> impl Iterator<Item = &Named> {
        self.named.get(uid).into_iter().flatten()
    }

    /// Why pods' directories cannot be listed, if they cannot.
    pub(super) fn unread_pods(&self) -> Option<&str> {
        self.pods.unread.as_deref()
    }

    /// Why containers' links cannot be listed, if they cannot.
    pub(super) fn unread_containers(&self) -> Option<&str> {
        self.containers.unread.as_deref()
    }

    /// Reads all names. Those of a directory that cannot be read stay as they were.
    pub(super) fn read(&mut self) {
        if let Some(entries) = self.pods.entries() {
            self.newest.read(entries.iter().filter_map(|entry| {
                let (name, uid) = entry.file_name().to_str().and_then(pod_directory)?;
                Some((name, uid, made(entry)))
            }));
        }
        if let Some(entries) = self.containers.entries() {
            let mut linked = Vec::new();
            self.named.clear();
            for entry in entries {
                let Some((name, container)) = entry.file_name().to_str().and_then(container_link) else {
                    continue;
                };
                let target = std::fs::read_link(entry.path()).ok();
                let uid = match target.as_deref().and_then(pod_of_target).filter(|(pod, _)| *pod == name) {
                    Some((_, uid)) => {
                        if !self.newest.uids.contains_key(&name) {
                            linked.push((name, uid.clone(), made(&entry)));
                        }
                        uid
                    }
                    // Some runtimes keep the log elsewhere.
                    None => match self.newest.of(&name).last() {
                        Some(uid) => uid.clone(),
                        None => continue,
                    },
                };
                self.named.entry(uid).or_default().insert(container);
            }
            self.linked.read(linked);
        }
    }
}

/// When an entry was made; where the file system does not keep that, when it changed last.
fn made(entry: &std::fs::DirEntry) -> SystemTime {
    let times = entry.metadata().and_then(|metadata| metadata.created().or_else(|_| metadata.modified()));
    times.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The pod of a directory's name. No name of Kubernetes has an underscore.
fn pod_directory(name: &str) -> Option<(PodName, PodUid)> {
    let [namespace, name, uid] = three(name)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    uid.bytes()
        .all(plain)
        .then(|| (PodName { namespace: namespace.into(), name: name.into() }, PodUid::new(uid)))
}

/// The pod and container of a link's name. Names that are too long are cut, and with them the identifier.
fn container_link(name: &str) -> Option<(PodName, Named)> {
    let [pod, namespace, container] = three(name.strip_suffix(".log")?)?;
    let (container, id) = container.rsplit_once('-')?;
    let full = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pod = PodName { namespace: namespace.into(), name: pod.into() };
    (full && !container.is_empty()).then(|| (pod, (container.into(), ContainerId::new(id))))
}

/// The pod whose log a link leads to: `…/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log`.
fn pod_of_target(target: &Path) -> Option<(PodName, PodUid)> {
    pod_directory(target.parent()?.parent()?.file_name()?.to_str()?)
}

fn three(text: &str) -> Option<[&str; 3]> {
    let mut parts = text.split('_').filter(|part| !part.is_empty());
    let three = [parts.next()?, parts.next()?, parts.next()?];
    (text.matches('_').count() == 2).then_some(three)
}

#[cfg(test)]
mod tests;
