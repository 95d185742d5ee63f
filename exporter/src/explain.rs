//! Where a pod's figures come from: `/status/pods/UID` as JSON, and the same in words. Not an API: fields and words may
//! change in any release.

mod chain;
mod roofline;

use std::collections::BTreeMap;

use serde::Serialize;
use warpmeter_core::explain::{Explanation, Ground, Recent, Why};
use warpmeter_core::identity::{DeviceId, MigId, Owner};
use warpmeter_core::injected::InjectedTotals;
use warpmeter_core::inventory::Counter;
use warpmeter_core::probe::{Doing, Waits};
use warpmeter_core::stall::Rule;
use warpmeter_core::state::{Class, State};
use warpmeter_core::time::SECOND;
use warpmeter_core::view::{AccountView, PodView, View};

use self::chain::ChainJson;
use self::roofline::WhileActive;
use crate::injected::{self, InjectedStatus};
use crate::units;

/// Parts smaller than this are not worth words.
const SMALL: f64 = 0.01;

/// Windows are closed within a few seconds. If the last one ended longer ago, in nanoseconds, no more are to come.
const LATE: u64 = 10 * SECOND;

/// The pod that `name` means: a UID, `namespace/pod`, or the name of a pod in any namespace.
///
/// A pod that is made anew under its old name, as one of a StatefulSet is, stands for minutes beside the one that it
/// replaced. A pod that has not ended is meant rather than one that has; of those that have, the one with the latest window.
///
/// # Errors
///
/// No pod has that name, or which of several is meant is not known: these are then named with their UIDs.
pub fn find<'v>(view: &'v View, name: &str) -> Result<&'v PodView, String> {
    if let Some(pod) = view.pods.iter().find(|pod| pod.uid.as_str() == name) {
        return Ok(pod);
    }
    let full = |pod: &&PodView| {
        pod.name.as_ref().is_some_and(|(namespace, pod)| {
            name.strip_prefix(&**namespace).and_then(|rest| rest.strip_prefix('/')) == Some(&**pod)
        })
    };
    let short = |pod: &&PodView| pod.name.as_ref().is_some_and(|(_, pod)| &**pod == name);
    let mut found: Vec<&PodView> = view.pods.iter().filter(full).collect();
    if found.is_empty() {
        found = view.pods.iter().filter(short).collect();
    }
    if found.iter().any(|pod| !pod.ended) {
        found.retain(|pod| !pod.ended);
    }
    match found.as_slice() {
        [] => Err(format!("no pod {name} holds or held a GPU here in the last while; see /status")),
        [pod] => Ok(pod),
        [first, rest @ ..] if first.ended && rest.iter().all(|pod| pod.name == first.name) => latest(&found)
            .ok_or_else(|| {
                let why = "and which of them ended last is not known";
                format!("several pods were called {name}, {why}: say the UID of one: {}", list(&found))
            }),
        _ => Err(format!("several pods are called {name}: say the UID of one: {}", list(&found))),
    }
}

/// The pod whose last window ended later than the others'. What ended so long ago that its windows are forgotten, or never
/// had one, is before all others.
fn latest<'v>(pods: &[&'v PodView]) -> Option<&'v PodView> {
    let last = |pod: &PodView| pod.explanation.windows.iter().map(|why| why.during.end()).max();
    let end = pods.iter().filter_map(|pod| last(pod)).max()?;
    let mut found = pods.iter().filter(|pod| last(pod) == Some(end));
    match (found.next(), found.next()) {
        (Some(pod), None) => Some(pod),
        _ => None,
    }
}

/// Pods by namespace and name, and UID.
fn list(pods: &[&PodView]) -> String {
    let one = |pod: &&PodView| {
        let name = pod.name.as_ref().map(|(namespace, name)| format!("{namespace}/{name}"));
        format!("{} ({})", pod.uid.as_str(), name.unwrap_or_default())
    };
    pods.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The explanation of a pod as JSON.
///
/// # Errors
///
/// Never for what a view can hold; the serializer's type says so.
pub fn json(view: &View, pod: &PodView) -> Result<String, serde_json::Error> {
    let explanation = &*pod.explanation;
    serde_json::to_string_pretty(&Explained {
        pod_uid: pod.uid.as_str(),
        namespace: pod.name.as_ref().map(|(namespace, _)| &**namespace),
        pod: pod.name.as_ref().map(|(_, name)| &**name),
        words: words(view, pod),
        devices: explanation.recent().iter().map(|recent| device(view, explanation, recent)).collect(),
        waits: explanation.all_waits().iter().map(WaitsJson::of).collect(),
    })
}

#[derive(Serialize)]
struct Explained<'a> {
    pod_uid: &'a str,
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
    words: Vec<String>,
    devices: Vec<DeviceJson<'a>>,
    waits: Vec<WaitsJson>,
}

#[derive(Serialize)]
struct DeviceJson<'a> {
    container: &'a str,
    gpu_uuid: &'a str,
    mig: Option<&'a str>,
    engine_source: Option<&'static str>,
    process_source: Option<&'static str>,
    /// What injected libraries have summed since they are read, if there are any: no part of the ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    injected: Option<InjectedStatus>,
    /// The waits behind the leading stall of the windows; none if there is none.
    chain: Option<ChainJson<'a>>,
    windows: Vec<WindowJson>,
}

#[derive(Serialize)]
struct WindowJson {
    ended_seconds_ago: f64,
    seconds: f64,
    used_seconds: Option<f64>,
    use_evidence: &'static str,
    allocation_evidence: &'static str,
    ground: &'static str,
    /// The roofline class of what it did; none if it did nothing.
    roofline: Option<&'static str>,
    /// Shares of peaks while the device was active; none where they are not the pod's own.
    while_active: Option<WhileActive>,
    /// Seconds by `state/cause`.
    states: BTreeMap<String, f64>,
    /// Seconds of the node's time by `state/cause` and rule.
    rules: BTreeMap<String, BTreeMap<&'static str, f64>>,
}

#[derive(Serialize)]
struct WaitsJson {
    sleeper_pid: u32,
    waker_pid: u32,
    count: u64,
    /// Seconds of the waits by what the waker did meanwhile.
    seconds: BTreeMap<&'static str, f64>,
}

impl WaitsJson {
    fn of(waits: &Waits) -> Self {
        let all = Doing::ALL.into_iter().zip(waits.doings).filter(|(_, nanos)| *nanos > 0);
        Self {
            sleeper_pid: waits.sleeper.pid.0,
            waker_pid: waits.waker.pid.0,
            count: waits.count,
            seconds: all.map(|(doing, nanos)| (doing.label(), units::seconds(nanos))).collect(),
        }
    }
}

fn device<'a>(view: &View, explanation: &'a Explanation, recent: &Recent<'a>) -> DeviceJson<'a> {
    let authority = authority(view, recent.device);
    DeviceJson {
        container: container(recent.owner),
        gpu_uuid: recent.device.gpu.as_str(),
        mig: recent.device.mig.as_ref().map(MigId::as_str),
        engine_source: authority.0,
        process_source: authority.1,
        injected: told(view, recent).map(InjectedStatus::of),
        chain: ChainJson::of(explanation, recent),
        windows: recent.windows.iter().map(|why| window(view, why)).collect(),
    }
}

fn window(view: &View, why: &Why) -> WindowJson {
    let mut rules: BTreeMap<String, BTreeMap<&'static str, f64>> = BTreeMap::new();
    for ((state, rule), amount) in why.rules.iter().flat_map(|rules| &rules.rules) {
        rules.entry(name(*state)).or_default().insert(rule.label(), units::seconds(*amount));
    }
    WindowJson {
        ended_seconds_ago: units::seconds(view.at.since(why.during.end())),
        seconds: units::seconds(why.during.nanos()),
        used_seconds: why.used.map(units::seconds),
        use_evidence: why.use_evidence.label(),
        allocation_evidence: why.allocation_evidence.label(),
        ground: why.ground.label(),
        roofline: why.roofline.map(|found| found.bound().label()),
        while_active: why.roofline.as_ref().and_then(WhileActive::of),
        states: why.states.iter().map(|(state, nanos)| (name(*state), units::seconds(*nanos))).collect(),
        rules,
    }
}

/// What injected libraries have summed of an owner on a device.
fn told<'v>(view: &'v View, recent: &Recent<'_>) -> Option<&'v InjectedTotals> {
    let is = |account: &&AccountView| account.owner == *recent.owner && account.device == *recent.device;
    view.accounts.iter().find(is)?.injected.as_ref()
}

/// `state/cause`, or the state alone where it has no cause.
fn name(state: State) -> String {
    match state.class() {
        Class::Active => state.class().label().to_owned(),
        class => format!("{}/{}", class.label(), state.cause()),
    }
}

fn container(owner: &Owner) -> &str {
    match owner {
        Owner::Pod { container, .. } => container,
        other => other.name(),
    }
}

/// Which counters give the device's engine time and that of processes.
fn authority(view: &View, device: &DeviceId) -> (Option<&'static str>, Option<&'static str>) {
    let gpu = view.gpus.iter().find(|gpu| gpu.gpu.id == device.gpu);
    let authority = gpu.map(|gpu| gpu.gpu.authority);
    (
        authority.and_then(|authority| authority.engine).map(Counter::label),
        authority.and_then(|authority| authority.processes).map(Counter::label),
    )
}

/// The explanation in words, a line each.
pub fn words(view: &View, pod: &PodView) -> Vec<String> {
    let name = pod.name.as_ref().map_or_else(
        || "a pod whose name is not known".to_owned(),
        |(namespace, name)| format!("pod {namespace}/{name}"),
    );
    let mut lines =
        vec![format!("{name} (uid {}){}", pod.uid.as_str(), if pod.ended { ", ended" } else { "" })];
    let explanation = &*pod.explanation;
    let all = explanation.recent();
    if all.is_empty() {
        lines.push("no window of it has closed yet, or none of the last while held a device".into());
    }
    for recent in &all {
        on_device(view, explanation, recent, &mut lines);
    }
    lines
}

fn on_device(view: &View, explanation: &Explanation, recent: &Recent<'_>, lines: &mut Vec<String>) {
    let states = recent.states();
    let whole: u64 = states.iter().map(|(_, amount)| amount).sum();
    let (engine, processes) = authority(view, recent.device);
    let device = match &recent.device.mig {
        Some(mig) => format!("{} of {}", mig.as_str(), recent.device.gpu.as_str()),
        None => recent.device.gpu.as_str().to_owned(),
    };
    let container = match container(recent.owner) {
        "" => String::new(),
        container => format!("container {container} "),
    };
    let ago = recent.windows.last().map_or(0, |why| view.at.since(why.during.end()));
    lines.push(format!(
        "{container}on {device}, last {:.0} s{}: {:.1} GPU seconds allocated",
        units::seconds(recent.span()),
        if ago < LATE { String::new() } else { format!(", until {:.0} s ago", units::seconds(ago)) },
        units::seconds(whole),
    ));
    if whole == 0 {
        return;
    }
    let mut small = 0;
    for (state, amount) in states {
        let share = units::share(amount, whole);
        if share < SMALL {
            small += amount;
            continue;
        }
        let why = because(recent, state, engine, processes);
        lines.push(format!("  {:3.0} % {}: {why}", share * 100.0, name(state)));
    }
    if units::share(small, whole) >= SMALL {
        lines.push(format!("  {:3.0} % in states of less than 1 % each", units::share(small, whole) * 100.0));
    }
    chain::words(explanation, recent, lines);
    roofline::words(view, recent, lines);
    lines.extend(told(view, recent).map(|told| format!("  {}", injected::words(told))));
}

/// Why a state has what it has.
fn because(
    recent: &Recent<'_>,
    state: State,
    engine: Option<&'static str>,
    processes: Option<&'static str>,
) -> String {
    if state.class() == Class::Active {
        let evidence = recent.windows.last().map_or("", |why| why.use_evidence.label());
        let source = engine.unwrap_or("no counter");
        return match (evidence, processes) {
            ("inferred", _) => {
                format!("the device ran for it ({evidence}: {source} divided by what processes asked for)")
            }
            ("measured", _) | (_, None) => format!("the device ran for it ({evidence}, by {source})"),
            (_, Some(processes)) => {
                format!("the device ran for it ({evidence}: {source} divided by {processes})")
            }
        };
    }
    match recent.ground(state) {
        Some(Ground::Causes) => found(recent, state),
        Some(Ground::Progress) => match state {
            State::IdleNoProcess => "no process of it has the device open".into(),
            State::IdleInitializing => "a process has the device open, and none has a context".into(),
            _ => "a process has a context, and none has launched a kernel".into(),
        },
        Some(Ground::Quiet) => "it has asked nothing of the device for long ([window] no_work_after)".into(),
        Some(Ground::Conflict) => {
            "the engine counter says that nothing ran, and another signal that it did".into()
        }
        Some(Ground::SourceLost) => "the device's counters were lost".into(),
        _ => "nothing shows what it did: its calls are not probed, or not yet".into(),
    }
}

fn found(recent: &Recent<'_>, state: State) -> String {
    let rules = recent.found_by(state);
    let whole: u64 = rules.iter().map(|(_, amount)| amount).sum();
    let mut parts = Vec::new();
    for (rule, amount) in rules {
        if whole == 0 || units::share(amount, whole) < 0.05 {
            continue;
        }
        let what = match (rule, state) {
            (Rule::Drained | Rule::Open, State::StalledLaunch) => {
                "in gaps shorter than 50 µs between small kernels"
            }
            (Rule::Drained, _) => "while nothing that it had asked for was left to do",
            (Rule::Open, State::StalledContended) => "with work that it did not wait for behind others'",
            (Rule::Open, _) => "between two enqueues, for longer than work in flight can have lasted",
            (Rule::Waiting, State::StalledContended) => "in calls that waited for its work while others' ran",
            (Rule::Waiting, State::StalledTransfer) => "in calls that waited for copies",
            (Rule::Waiting, _) => "in calls that waited for its work, while none of it ran",
            (Rule::Alike, _) => {
                "while it waited for others when the second ended, as in waits that ended in it"
            }
            (Rule::Feeders, _) => "while it waited for others that were still at it when the second ended",
            (Rule::Samples, _) => "by samples of its threads, beyond the time that the device ran",
            (Rule::Habit, _) => {
                "as when its calls were seen last, which are too many to be probed all the time"
            }
            (Rule::Rest, _) => "no gap between its calls explains it",
        };
        parts.push(if units::share(amount, whole) > 0.95 {
            what.to_owned()
        } else {
            format!("{:.0} % {what}", units::share(amount, whole) * 100.0)
        });
    }
    parts.join("; ")
}
