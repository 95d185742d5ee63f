//! Families of Kubernetes pods, per container and device, and of pods as a whole.

use warpmeter_core::identity::{MigId, Owner};
use warpmeter_core::injected::InjectedTotals;
use warpmeter_core::lengths::BOUNDS;
use warpmeter_core::pressure::{PressureTotals, Resource};
use warpmeter_core::probe::{Asked, Doing, GapKind};
use warpmeter_core::roofline::Bound;
use warpmeter_core::state::{Class, State};
use warpmeter_core::view::{AccountView, PodView, View};

use super::{Family, Group, Level, Unit, counter, gauge, histogram};
use crate::rows::Rows;
use crate::units;

const ACCOUNT: &[&str] = &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig"];

pub(super) const GROUP: Group = Group {
    title: "Pods",
    about: "GPU time is in seconds of the physical GPU. A pod whose name is not known yet has \
            `namespace=\"\"` and `pod=\"\"`; its `pod_uid` is always set. Counters of a pod that has \
            ended stay for five minutes, its gauges vanish at once; for sums over time use the namespace \
            families. Every state and cause is there from the pod's first window on.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    gauge(
        "warpmeter_pod_info",
        Unit::Info,
        Level::Minimal,
        &[
            "namespace",
            "pod",
            "pod_uid",
            "node",
            "workload_kind",
            "workload",
            "team",
            "app",
            "model",
            "environment",
            "idle_ok",
        ],
        "What is known of a pod; idle_ok is true where idleness is intended.",
        |view, rows| {
            for pod in view.pods.iter().filter(|pod| !pod.ended) {
                let [namespace, name, uid] = pod_labels(pod);
                let info = &pod.info;
                rows.push(
                    &[
                        namespace,
                        name,
                        uid,
                        &view.node,
                        &info.workload_kind,
                        &info.workload,
                        &info.team,
                        &info.app,
                        &info.model,
                        &info.environment,
                        if info.idle_ok { "true" } else { "false" },
                    ],
                    1.0,
                );
            }
        },
    ),
    counter(
        "warpmeter_pod_gpu_seconds_total",
        Unit::GpuSeconds,
        Level::Minimal,
        &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig", "state", "cause"],
        "GPU time allocated to the container, by state and by what caused it.",
        |view, rows| {
            for (account, [namespace, pod, uid, container, gpu, mig]) in accounts(view) {
                for (state, nanos) in State::ALL.into_iter().zip(account.states) {
                    let (class, cause) = (state.class().label(), state.cause());
                    rows.push(
                        &[namespace, pod, uid, container, gpu, mig, class, cause],
                        units::seconds(nanos),
                    );
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_cost_total",
        Unit::Currency,
        Level::Minimal,
        &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig", "currency", "state"],
        "Cost of GPU time allocated to the container, by state; no series while the price is not known.",
        |view, rows| {
            for (account, [namespace, pod, uid, container, gpu, mig]) in accounts(view) {
                for (class, cost) in Class::ALL.into_iter().zip(account.costs.into_iter().flatten()) {
                    let (currency, class) = (view.currency.as_str(), class.label());
                    rows.push(
                        &[namespace, pod, uid, container, gpu, mig, currency, class],
                        units::money(cost),
                    );
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_gpu_used_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "GPU time in which the container's work ran, borrowed time included.",
        |view, rows| each(view, rows, |account| Some(units::seconds(account.used))),
    ),
    counter(
        "warpmeter_pod_gpu_borrowed_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "GPU time that the container used beyond its allocation; not priced.",
        |view, rows| each(view, rows, |account| Some(units::seconds(account.borrowed))),
    ),
    counter(
        "warpmeter_pod_profiled_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "Allocated GPU time with valid counters: the denominator of the container's activity.",
        |view, rows| each(view, rows, |account| Some(units::seconds(account.profiled))),
    ),
    counter(
        "warpmeter_pod_sm_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "Share of SMs with a warp of the container resident, over time.",
        |view, rows| each(view, rows, |account| account.activity.sm_active.map(units::seconds)),
    ),
    counter(
        "warpmeter_pod_sm_occupied_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "Warps of the container resident as a share of the most there can be, over time.",
        |view, rows| each(view, rows, |account| account.activity.sm_occupied.map(units::seconds)),
    ),
    counter(
        "warpmeter_pod_tensor_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "Share of tensor pipes active for the container, over time.",
        |view, rows| each(view, rows, |account| account.activity.tensor.map(units::seconds)),
    ),
    counter(
        "warpmeter_pod_dram_bandwidth_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "Device memory bandwidth used by the container as a share of its peak, over time.",
        |view, rows| each(view, rows, |account| account.activity.dram.map(units::seconds)),
    ),
    counter(
        "warpmeter_pod_low_intensity_active_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        ACCOUNT,
        "SM activity while tensor pipes and device memory did next to nothing: a hint of spinning kernels.",
        |view, rows| each(view, rows, |account| account.low_intensity.map(units::seconds)),
    ),
    counter(
        "warpmeter_pod_roofline_seconds_total",
        Unit::GpuSeconds,
        Level::Standard,
        &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig", "class"],
        "GPU time in which the container's work ran, by its roofline class: what bounded it; unknown where others used the device \
         too or counters are missing.",
        |view, rows| {
            for (account, [namespace, pod, uid, container, gpu, mig]) in accounts(view) {
                for (bound, nanos) in Bound::ALL.into_iter().zip(account.bounds) {
                    let labels = [namespace, pod, uid, container, gpu, mig, bound.label()];
                    rows.push(&labels, units::seconds(nanos));
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_energy_joules_total",
        Unit::Joules,
        Level::Standard,
        ACCOUNT,
        "Energy of the board: what it draws without work by what the container holds, the rest by its part of the use.",
        |view, rows| each(view, rows, |account| account.energy_uj.map(units::joules)),
    ),
    counter(
        "warpmeter_pod_idle_energy_joules_total",
        Unit::Joules,
        Level::Standard,
        ACCOUNT,
        "Of that, what the board draws without work; no series until it was seen without any.",
        |view, rows| each(view, rows, |account| account.idle_energy_uj.map(units::joules)),
    ),
    counter(
        "warpmeter_pod_energy_cost_total",
        Unit::Currency,
        Level::Standard,
        &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig", "currency"],
        "Cost of that energy; no series while the price of energy is not known.",
        |view, rows| {
            for (account, [namespace, pod, uid, container, gpu, mig]) in accounts(view) {
                let labels = [namespace, pod, uid, container, gpu, mig, &view.currency];
                rows.maybe(&labels, account.energy_cost.map(units::money));
            }
        },
    ),
    counter(
        "warpmeter_pod_kernel_launches_total",
        Unit::Count,
        Level::Full,
        ACCOUNT,
        "Kernels that the container launched; those that a graph launches are not among them.",
        |view, rows| each_calls(view, rows, |calls| units::count(calls.launches)),
    ),
    counter(
        "warpmeter_pod_graph_launches_total",
        Unit::Count,
        Level::Full,
        ACCOUNT,
        "CUDA graphs that the container launched.",
        |view, rows| each_calls(view, rows, |calls| units::count(calls.graph_launches)),
    ),
    counter(
        "warpmeter_pod_copy_to_device_bytes_total",
        Unit::Bytes,
        Level::Full,
        ACCOUNT,
        "Bytes that the container asked to be copied to the device.",
        |view, rows| each_calls(view, rows, |calls| units::count(calls.bytes_to_device)),
    ),
    counter(
        "warpmeter_pod_copy_to_host_bytes_total",
        Unit::Bytes,
        Level::Full,
        ACCOUNT,
        "Bytes that the container asked to be copied from the device.",
        |view, rows| each_calls(view, rows, |calls| units::count(calls.bytes_to_host)),
    ),
    counter(
        "warpmeter_pod_copy_other_bytes_total",
        Unit::Bytes,
        Level::Full,
        ACCOUNT,
        "Bytes that the container asked to be copied within or between devices, or in a direction that it did not say.",
        |view, rows| each_calls(view, rows, |calls| units::count(calls.bytes_other)),
    ),
    counter(
        "warpmeter_pod_copy_wait_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Time that the container's threads spent in copies that held them up: blocking ones, and enqueued ones of 0.05 ms or more.",
        |view, rows| each_calls(view, rows, |calls| units::seconds(calls.copy_wait)),
    ),
    counter(
        "warpmeter_pod_sync_wait_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Time that the container's threads spent in synchronising calls.",
        |view, rows| each_calls(view, rows, |calls| units::seconds(calls.sync_wait)),
    ),
    counter(
        "warpmeter_pod_injected_elapsed_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Time for which an injected library was in processes of the container that used the device, each for itself.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.sums.elapsed)),
    ),
    counter(
        "warpmeter_pod_injected_sampled_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Of that, time in which it asked for records: the other figures of injected libraries are of work launched then.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.sums.sampled)),
    ),
    counter(
        "warpmeter_pod_injected_busy_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Time in which at least one kernel of a process had begun and not ended, as processes say of themselves; on a \
         device that is shared by turns, with others' turns in between.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.sums.busy)),
    ),
    counter(
        "warpmeter_pod_injected_ran_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "The same without the time for which kernels seem to have been interrupted.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.sums.ran)),
    ),
    counter(
        "warpmeter_pod_injected_kernels_total",
        Unit::Count,
        Level::Full,
        ACCOUNT,
        "Kernels that ran, by the records of injected libraries; those of graphs are among them.",
        |view, rows| each_injected(view, rows, |told| units::count(told.sums.kernels)),
    ),
    counter(
        "warpmeter_pod_injected_dropped_records_total",
        Unit::Count,
        Level::Full,
        ACCOUNT,
        "Records of processes that used the device for which there was no room, or that cannot be.",
        |view, rows| each_injected(view, rows, |told| units::count(told.sums.dropped)),
    ),
    counter(
        "warpmeter_pod_injected_cpu_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "CPU time of the injected libraries' own threads.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.sums.cpu)),
    ),
    counter(
        "warpmeter_pod_injected_shaped_kernel_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "Time of kernels, each for itself, whose theoretical occupancy is known.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.shaped)),
    ),
    counter(
        "warpmeter_pod_injected_theoretical_occupancy_seconds_total",
        Unit::Seconds,
        Level::Full,
        ACCOUNT,
        "That time × theoretical occupancy: the most warps that an SM could hold of each kernel ÷ the most of any.",
        |view, rows| each_injected(view, rows, |told| units::seconds(told.theoretical)),
    ),
    histogram(
        "warpmeter_pod_gap_duration_seconds",
        Unit::Seconds,
        Level::Full,
        &["namespace", "pod", "pod_uid", "container", "gpu_uuid", "mig", "kind"],
        "Gaps between the container's calls that have ended, by length: `drained` from the return of a call that left nothing \
         outstanding to the next enqueue, `enqueue` between two enqueues, `sync` from an enqueue to the end of the wait for it.",
        |view, rows| {
            for (account, [namespace, pod, uid, container, gpu, mig]) in accounts(view) {
                let Some(gaps) = &account.gaps else { continue };
                for (kind, lengths) in GapKind::ALL.into_iter().zip(gaps.0) {
                    let labels = [namespace, pod, uid, container, gpu, mig, kind.label()];
                    let below = BOUNDS.map(units::seconds).into_iter().zip(lengths.counts);
                    rows.histogram(
                        &labels,
                        below,
                        lengths.counts[BOUNDS.len()],
                        units::seconds(lengths.nanos),
                    );
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_host_thread_seconds_total",
        Unit::Seconds,
        Level::Full,
        &["namespace", "pod", "pod_uid", "threads", "doing"],
        "Time of the pod's threads on the host, outside the CUDA driver, by what they did; `callers` are those that call it.",
        |view, rows| {
            for pod in &view.pods {
                let [namespace, name, uid] = pod_labels(pod);
                let Some(totals) = pod.threads else { continue };
                for (threads, sums) in [("callers", totals.callers), ("others", totals.others)] {
                    for (doing, nanos) in Doing::ALL.into_iter().zip(sums) {
                        let labels = [namespace, name, uid, threads, doing.label()];
                        rows.push(&labels, units::seconds(nanos));
                    }
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_pressure_seconds_total",
        Unit::Seconds,
        Level::Standard,
        &["namespace", "pod", "pod_uid", "resource"],
        "Time in which some thread of the pod waited for a resource, by the pressure files of its cgroup (version 2), \
         since it was first seen to use a GPU.",
        |view, rows| {
            for (pod, totals) in pressures(view) {
                let [namespace, name, uid] = pod_labels(pod);
                for (resource, waited) in Resource::ALL.into_iter().zip(totals.waited) {
                    rows.maybe(&[namespace, name, uid, resource.label()], waited.map(units::seconds));
                }
            }
        },
    ),
    counter(
        "warpmeter_pod_cpu_throttled_seconds_total",
        Unit::Seconds,
        Level::Standard,
        &["namespace", "pod", "pod_uid"],
        "Time of CPUs in which CPU limits held the pod and its containers back, since it was first seen to use a GPU.",
        |view, rows| {
            for (pod, totals) in pressures(view) {
                rows.maybe(&pod_labels(pod), totals.throttled.map(units::seconds));
            }
        },
    ),
    gauge(
        "warpmeter_pod_memory_used_bytes",
        Unit::Bytes,
        Level::Standard,
        ACCOUNT,
        "Device memory in use by the container.",
        |view, rows| {
            each(view, rows, |account| account.memory_used.filter(|_| !account.ended).map(units::count));
        },
    ),
    gauge(
        "warpmeter_pod_allocated_gpus",
        Unit::Gpus,
        Level::Standard,
        ACCOUNT,
        "How much of the physical GPU the container holds now.",
        |view, rows| {
            each(view, rows, |account| if account.ended { None } else { held(view, account) });
        },
    ),
    gauge(
        "warpmeter_pod_start_timestamp_seconds",
        Unit::Timestamp,
        Level::Standard,
        &["namespace", "pod", "pod_uid"],
        "When the pod's first process started.",
        |view, rows| each_pod(view, rows, |pod| pod.started.map(units::timestamp)),
    ),
    gauge(
        "warpmeter_pod_gpu_utilization_ratio",
        Unit::Ratio,
        Level::Standard,
        &["namespace", "pod", "pod_uid"],
        "Activity as a share of what the pod holds, over the last 60 seconds: for autoscalers.",
        |view, rows| each_pod(view, rows, |pod| pod.utilization.map(units::ratio)),
    ),
];

fn accounts(view: &View) -> impl Iterator<Item = (&AccountView, [&str; 6])> {
    view.accounts.iter().filter_map(|account| labels(account).map(|labels| (account, labels)))
}

fn labels(account: &AccountView) -> Option<[&str; 6]> {
    let Owner::Pod { uid, container } = &account.owner else { return None };
    let (namespace, pod) = account.pod.as_ref().map_or(("", ""), |(namespace, pod)| (&**namespace, &**pod));
    let mig = account.device.mig.as_ref().map_or("", MigId::as_str);
    Some([namespace, pod, uid.as_str(), container, account.device.gpu.as_str(), mig])
}

fn each(view: &View, rows: &mut Rows<'_>, read: impl Fn(&AccountView) -> Option<f64>) {
    for (account, labels) in accounts(view) {
        rows.maybe(&labels, read(account));
    }
}

fn each_calls(view: &View, rows: &mut Rows<'_>, read: impl Fn(&Asked) -> f64) {
    each(view, rows, |account| account.calls.as_ref().map(&read));
}

fn each_injected(view: &View, rows: &mut Rows<'_>, read: impl Fn(&InjectedTotals) -> f64) {
    each(view, rows, |account| account.injected.as_ref().map(&read));
}

fn pressures(view: &View) -> impl Iterator<Item = (&PodView, PressureTotals)> {
    view.pods.iter().filter_map(|pod| pod.pressure.map(|totals| (pod, totals)))
}

fn pod_labels(pod: &PodView) -> [&str; 3] {
    let (namespace, name) = pod.name.as_ref().map_or(("", ""), |(namespace, name)| (&**namespace, &**name));
    [namespace, name, pod.uid.as_str()]
}

fn each_pod(view: &View, rows: &mut Rows<'_>, read: impl Fn(&PodView) -> Option<f64>) {
    for pod in view.pods.iter().filter(|pod| !pod.ended) {
        rows.maybe(&pod_labels(pod), read(pod));
    }
}

/// What the account holds, in physical GPUs: of an instance, by its slices, as time is counted too.
fn held(view: &View, account: &AccountView) -> Option<f64> {
    let part = units::ratio(account.allocated?);
    if account.device.mig.is_none() {
        return Some(part);
    }
    let gpu = view.gpu(&account.device.gpu)?;
    let slices = gpu.gpu.mig.as_ref()?.slices;
    let device = gpu.devices.iter().find(|device| device.id == account.device)?;
    let instance = device.instance.as_ref()?;
    (slices > 0).then(|| part * f64::from(instance.slices) / f64::from(slices))
}
