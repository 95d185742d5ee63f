//! `/status`: what a person asks first, as JSON. Not an API: fields may change in any release.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use warpmeter_core::fact::{Discard, HealthState};
use warpmeter_core::identity::{MigId, Owner};
use warpmeter_core::inventory::{Authority, Counter, Driver};
use warpmeter_core::pressure::Corroboration;
use warpmeter_core::state::{Class, State};
use warpmeter_core::time::MonoNs;
use warpmeter_core::view::{AccountView, GpuView, SourceView, View};

use crate::injected::InjectedStatus;
use crate::units;

/// The status of `view` as JSON.
///
/// # Errors
///
/// Never for what a view can hold; the serializer's type says so.
pub fn json(view: &View, reasons: &[String], uptime: Duration) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&Status {
        node: &view.node,
        version: crate::VERSION,
        uptime_seconds: uptime.as_secs(),
        ready: reasons.is_empty(),
        not_ready_because: reasons,
        windows: view.windows,
        conservation_error_nanoseconds: view.conservation_error,
        driver: view.driver.as_ref(),
        sources: view.sources.iter().map(|source| SourceStatus::of(view, source)).collect(),
        gpus: view.gpus.iter().map(|gpu| GpuStatus::of(view, gpu)).collect(),
        pods: view
            .pods
            .iter()
            .map(|pod| PodStatus {
                pod_uid: pod.uid.as_str(),
                namespace: pod.name.as_ref().map(|(namespace, _)| &**namespace),
                pod: pod.name.as_ref().map(|(_, name)| &**name),
                ended: pod.ended,
                utilization: pod.utilization.map(units::ratio),
                leading_stall: pod.corroboration.as_ref().map(StallStatus::of),
                devices: devices(view, |owner| matches!(owner, Owner::Pod { uid, .. } if *uid == pod.uid)),
            })
            .collect(),
        others: devices(view, |owner| !matches!(owner, Owner::Pod { .. })),
    })
}

#[derive(Serialize)]
struct Status<'a> {
    node: &'a str,
    version: &'static str,
    uptime_seconds: u64,
    ready: bool,
    not_ready_because: &'a [String],
    windows: u64,
    conservation_error_nanoseconds: u64,
    driver: Option<&'a Driver>,
    sources: Vec<SourceStatus<'a>>,
    gpus: Vec<GpuStatus<'a>>,
    pods: Vec<PodStatus<'a>>,
    others: Vec<DeviceStatus<'a>>,
}

#[derive(Serialize)]
struct SourceStatus<'a> {
    source: &'static str,
    health: Option<&'static str>,
    reason: &'a str,
    for_seconds: Option<f64>,
    last_fact_seconds_ago: Option<f64>,
    last_answer_seconds_ago: Option<f64>,
    facts: u64,
    lost: u64,
    discarded: BTreeMap<&'static str, u64>,
}

impl<'a> SourceStatus<'a> {
    fn of(view: &View, source: &'a SourceView) -> Self {
        let discarded = Discard::ALL.into_iter().zip(source.discarded).filter(|(_, count)| *count > 0);
        Self {
            source: source.source.label(),
            health: source.state.map(HealthState::label),
            reason: &source.reason,
            for_seconds: source.state.map(|_| ago(view, source.since)),
            last_fact_seconds_ago: source.last_fact.map(|at| ago(view, at)),
            last_answer_seconds_ago: source.last_answer.map(|at| ago(view, at)),
            facts: source.facts,
            lost: source.lost,
            discarded: discarded.map(|(reason, count)| (reason.label(), count)).collect(),
        }
    }
}

#[derive(Serialize)]
struct GpuStatus<'a> {
    gpu_uuid: &'a str,
    index: Option<u32>,
    model: &'a str,
    up: bool,
    down_because: Option<&'a str>,
    sharing: &'static str,
    instances: Vec<InstanceStatus<'a>>,
    authority: AuthorityStatus,
    last_reading_seconds_ago: Option<f64>,
    /// The age of what a neighbouring exporter gives.
    sm_counted_until_seconds_ago: Option<f64>,
}

impl<'a> GpuStatus<'a> {
    fn of(view: &View, gpu: &'a GpuView) -> Self {
        let instances = gpu.devices.iter().filter(|device| device.present);
        Self {
            gpu_uuid: gpu.gpu.id.as_str(),
            index: gpu.gpu.index,
            model: &gpu.gpu.model,
            up: gpu.up,
            down_because: gpu.gpu.down.as_deref(),
            sharing: gpu.sharing,
            instances: instances
                .filter_map(|device| device.instance.as_ref())
                .map(|instance| InstanceStatus { mig: instance.id.as_str(), profile: &instance.profile })
                .collect(),
            authority: AuthorityStatus::of(gpu.gpu.authority),
            last_reading_seconds_ago: gpu.last_reading.map(|at| ago(view, at)),
            sm_counted_until_seconds_ago: gpu.averaged_until.map(|at| ago(view, at)),
        }
    }
}

#[derive(Serialize)]
struct InstanceStatus<'a> {
    mig: &'a str,
    profile: &'a str,
}

#[derive(Serialize)]
struct AuthorityStatus {
    engine: Option<&'static str>,
    sm: Option<&'static str>,
    processes: Option<&'static str>,
}

impl AuthorityStatus {
    fn of(authority: Authority) -> Self {
        Self {
            engine: authority.engine.map(Counter::label),
            sm: authority.sm.map(Counter::label),
            processes: authority.processes.map(Counter::label),
        }
    }
}

#[derive(Serialize)]
struct PodStatus<'a> {
    pod_uid: &'a str,
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
    ended: bool,
    utilization: Option<f64>,
    leading_stall: Option<StallStatus>,
    devices: Vec<DeviceStatus<'a>>,
}

/// The leading cause of a pod's stalls in the last minute, and what its cgroups say of it.
#[derive(Serialize)]
struct StallStatus {
    cause: &'static str,
    /// Of the pod's devices.
    seconds: f64,
    over_seconds: f64,
    /// Of its threads: any of them waited for the cause's resource.
    pressure_seconds: Option<f64>,
    /// Of CPUs: held back by its limits.
    throttled_seconds: Option<f64>,
    corroborated: Option<bool>,
}

impl StallStatus {
    fn of(found: &Corroboration) -> Self {
        Self {
            cause: found.leading.cause(),
            seconds: units::seconds(found.stalled),
            over_seconds: units::seconds(found.during),
            pressure_seconds: found.waited.map(units::seconds),
            throttled_seconds: found.throttled.map(units::seconds),
            corroborated: found.confirmed(),
        }
    }
}

/// One account: of a pod's container, or of an owner that is not a pod.
#[derive(Serialize)]
struct DeviceStatus<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<(&'static str, &'a str)>,
    gpu_uuid: &'a str,
    mig: Option<&'a str>,
    /// Share of the device.
    allocated: Option<f64>,
    /// GPU seconds by state.
    seconds: BTreeMap<&'static str, f64>,
    /// What injected libraries have summed, if there are any: no part of the ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    injected: Option<InjectedStatus>,
}

fn devices(view: &View, of: impl Fn(&Owner) -> bool) -> Vec<DeviceStatus<'_>> {
    view.accounts.iter().filter(|account| of(&account.owner)).map(device).collect()
}

fn device(account: &AccountView) -> DeviceStatus<'_> {
    let (container, owner) = match &account.owner {
        Owner::Pod { container, .. } => (Some(&**container), None),
        other => (None, Some((other.kind(), other.name()))),
    };
    let seconds = Class::ALL.map(|class| {
        let states = State::ALL.into_iter().zip(account.states);
        let nanos = states.filter(|(state, _)| state.class() == class).map(|(_, nanos)| nanos).sum();
        (class.label(), units::seconds(nanos))
    });
    DeviceStatus {
        container,
        owner,
        gpu_uuid: account.device.gpu.as_str(),
        mig: account.device.mig.as_ref().map(MigId::as_str),
        allocated: account.allocated.map(units::ratio),
        seconds: BTreeMap::from(seconds),
        injected: account.injected.as_ref().map(InjectedStatus::of),
    }
}

/// Seconds from `at` to the view's time.
fn ago(view: &View, at: MonoNs) -> f64 {
    units::seconds(view.at.since(at))
}
