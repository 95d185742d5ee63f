//! What one cgroup path says about the owner of the processes in it.
//!
//! Paths are read from the root down and the first pod or job wins: everything below its cgroup may have been
//! named by the workload itself, which must not be able to pose as another. A container outside Kubernetes gives
//! way to a pod below it, since a node of a test cluster is such a container.

use warpmeter_core::identity::{ContainerId, PodUid, Scope};

/// Parents of a pod's directory under the cgroupfs driver.
const POD_PARENTS: [&str; 4] = ["kubepods", "burstable", "besteffort", "guaranteed"];
/// What runtimes put before a container's identifier. The first that fits is taken.
const RUNTIMES: [&str; 6] = ["cri-containerd-", "crio-", "docker-", "libpod-payload-", "libpod-", "nerdctl-"];
/// The fewest hexadecimal digits that are taken for a container's identifier where a runtime or a pod precedes it.
const SHORT_ID: usize = 12;
/// The digits of a full identifier, which need nothing around them to be recognised.
const FULL_ID: usize = 64;

/// The owner that `path` names.
pub(super) fn scope(path: &str) -> Scope {
    // The kernel marks the cgroup of a process that outlived it.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
    let (mut container, mut unit) = (None, None);
    let mut above = Above::default();
    while let Some(name) = names.next() {
        if let Some((uid, inline)) = pod(name, above) {
            let container = inline.or_else(|| names.peek().and_then(|child| container_of_pod(child)));
            return Scope::Pod { uid, container };
        }
        if let Some(job) = slurm_job(name, above) {
            return Scope::SlurmJob(job.into());
        }
        if container.is_none() {
            container = lone_container(name, above);
        }
        if is_unit(name, unit) {
            unit = Some(name);
        }
        above = above.then(name);
    }
    match (container, unit) {
        (Some(id), _) => Scope::Container(id),
        (None, Some(unit)) => Scope::Unit(unit.into()),
        (None, None) => Scope::Host,
    }
}

/// What has been passed on the way from the root.
#[derive(Debug, Clone, Copy, Default)]
struct Above<'a> {
    parent: Option<&'a str>,
    grandparent: Option<&'a str>,
    kubepods: bool,
}

impl<'a> Above<'a> {
    fn then(self, name: &'a str) -> Self {
        Self { parent: Some(name), grandparent: self.parent, kubepods: self.kubepods || name == "kubepods" }
    }

    /// Whether the real parent may be hidden: above the root of a cgroup namespace only `..` is seen.
    fn cut(self) -> bool {
        self.parent.is_none_or(|parent| parent == "..")
    }
}

/// The pod that `name` is the cgroup of, and its container where the same name holds both.
fn pod(name: &str, above: Above<'_>) -> Option<(PodUid, Option<ContainerId>)> {
    // Where kubelet and runtime disagree on the driver, systemd's notation arrives as the name of one directory.
    if let Some((slice, rest)) = name.split_once(':') {
        let (_, id) = rest.rsplit_once(':')?;
        return Some((pod_of_slice(slice)?, container_of_pod(id)));
    }
    if let Some(uid) = pod_of_slice(name) {
        return Some((uid, None));
    }
    let uid = name.strip_prefix("pod")?;
    let expected = above.parent.is_some_and(|parent| POD_PARENTS.contains(&parent));
    let known = expected && above.kubepods && is_uid(uid);
    // Without `kubepods` in sight the name alone must convince.
    let convincing = (expected || above.cut()) && is_generated_uid(uid);
    (known || convincing).then(|| (PodUid::new(uid), None))
}

/// The pod of a slice of the systemd driver: `[ROOT-]kubepods[-CLASS]-podUID.slice`, with `_` for `-` in the UID.
fn pod_of_slice(name: &str) -> Option<PodUid> {
    let (before, after) = name.strip_suffix(".slice")?.split_once("kubepods-")?;
    if !(before.is_empty() || before.ends_with('-')) {
        return None;
    }
    let uid = ["burstable-", "besteffort-", "guaranteed-"]
        .iter()
        .find_map(|class| after.strip_prefix(class))
        .unwrap_or(after)
        .strip_prefix("pod")?
        .replace('_', "-");
    is_uid(&uid).then(|| PodUid::new(uid))
}

/// Whether a UID can be one: a manifest of a static pod may set any.
fn is_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// Whether a UID is as the API server (a UUID) or a kubelet (a hash of 32 hexadecimal digits) makes them.
fn is_generated_uid(uid: &str) -> bool {
    match uid.len() {
        32 => is_hex(uid),
        36 => uid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        }),
        _ => false,
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The container of a cgroup directly below a pod's.
pub(super) fn container_of_pod(name: &str) -> Option<ContainerId> {
    container(name).or_else(|| (name.len() >= SHORT_ID && is_hex(name)).then(|| ContainerId::new(name)))
}

/// The container of a cgroup that is not known to be in a pod.
fn lone_container(name: &str, above: Above<'_>) -> Option<ContainerId> {
    let lxc = || {
        let beside = above.parent.is_some_and(|parent| matches!(parent, "lxc" | "lxc.payload"));
        let id = name.strip_prefix("lxc.payload.").or_else(|| beside.then_some(name))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!id.is_empty() && id.bytes().all(plain)).then(|| ContainerId::new(id))
    };
    container(name)
        .or_else(|| (name.len() == FULL_ID && is_hex(name)).then(|| ContainerId::new(name)))
        .or_else(lxc)
}

/// The container of a name `RUNTIME-ID[.scope]`. A runtime's monitor (`RUNTIME-conmon-ID`) is not of the workload.
fn container(name: &str) -> Option<ContainerId> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let known = RUNTIMES.iter().find_map(|runtime| name.strip_prefix(runtime));
    let (id, shortest) = match known {
        Some(id) => (id, SHORT_ID),
        None => (name.rsplit_once('-').filter(|(runtime, _)| !runtime.contains("conmon"))?.1, FULL_ID),
    };
    (id.len() >= shortest && is_hex(id)).then(|| ContainerId::new(id))
}

/// The job of a cgroup of Slurm: `slurm[_NODE]/uid_N/job_ID` (v1), `[NODE_]slurmstepd.scope/job_ID` (v2).
fn slurm_job<'a>(name: &'a str, above: Above<'_>) -> Option<&'a str> {
    let job = name.strip_prefix("job_")?;
    let parent = above.parent?;
    let of_user =
        parent.strip_prefix("uid_").is_some_and(|uid| uid.bytes().all(|byte| byte.is_ascii_digit()))
            && above.grandparent.is_some_and(|top| top.starts_with("slurm") || top == "..");
    let of_step_manager = parent.ends_with("slurmstepd.scope");
    let plain = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (plain && (of_user || of_step_manager)).then_some(job)
}

/// Whether `name` is the unit to name, after `outer`: the innermost service or scope, with systemd's escapes.
///
/// A user's service manager runs in `user@N.service/init.scope`: it goes by the service, since `init.scope` is the
/// name of the system's own.
fn is_unit(name: &str, outer: Option<&str>) -> bool {
    let stem = name.strip_suffix(".service").or_else(|| name.strip_suffix(".scope"));
    stem.is_some_and(|stem| !stem.is_empty()) && !(name == "init.scope" && outer.is_some())
}

/// How much `scope` says: of several hierarchies the one that says most is believed.
pub(super) fn strength(scope: &Scope) -> u8 {
    match scope {
        Scope::Pod { container: Some(_), .. } => 5,
        Scope::Pod { container: None, .. } => 4,
        Scope::SlurmJob(_) => 3,
        Scope::Container(_) => 2,
        Scope::Unit(_) => 1,
        Scope::Host => 0,
    }
}

/// Whether processes of `scope` are a workload, whose device files are worth looking at.
pub(crate) fn is_workload(scope: &Scope) -> bool {
    match scope {
        Scope::Pod { .. } | Scope::Container(_) | Scope::SlurmJob(_) => true,
        Scope::Unit(_) | Scope::Host => false,
    }
}
