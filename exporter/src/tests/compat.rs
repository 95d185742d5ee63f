//! Figures under DCGM's names: what they are called, what they say of the sample, and that they add up.

mod sums;

use std::collections::BTreeSet;
use std::sync::Arc;

use warpmeter_core::inventory::Counter;
use warpmeter_core::time::SECOND;
use warpmeter_core::view::{Activity, View};

use super::parse::Series;
use super::sample;
use crate::compat::Dcgm;

/// DCGM's fields as its exporter declares them: name and Prometheus type.
const FIELDS: [(&str, &str); 21] = [
    ("DCGM_FI_DEV_SM_CLOCK", "gauge"),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge"),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge"),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge"),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter"),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge"),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge"),
    ("DCGM_FI_DEV_FB_FREE", "gauge"),
    ("DCGM_FI_DEV_FB_USED", "gauge"),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter"),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter"),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge"),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge"),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge"),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge"),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge"),
];

const LABELS: [&str; 13] = [
    "DCGM_FI_DRIVER_VERSION",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "Hostname",
    "UUID",
    "container",
    "device",
    "gpu",
    "modelName",
    "namespace",
    "pci_bus_id",
    "pod",
    "pod_uid",
];

/// The sample, and the same a second later.
fn windows() -> [View; 2] {
    let before = sample::view();
    let mut after = before.clone();
    let half = SECOND / 2;
    for gpu in after.gpus.iter_mut().filter(|gpu| gpu.up) {
        gpu.elapsed += SECOND;
        for device in &mut gpu.devices {
            device.profiled += SECOND;
            device.usage.used += half;
            advance(&mut device.activity, half);
        }
    }
    after.gpus[0].totals.energy_uj = Some(1_234_567_890 + 350_000_000);
    after.gpus[0].totals.pcie_transmit = Some(5_000);
    after.gpus[0].xids = vec![(13, 1), (79, 2), (31, 1)];
    after.gpus[0].xids.sort_unstable();
    after.gpus[1].totals.energy_uj = Some(5_000_000 + 100_000_000);
    after.gpus[1].board.power_mw = Some(120_001);
    after.gpus[2].board.memory_used = Some(6 << 30);
    after.gpus[2].board.power_mw = Some(90_000);
    for account in &mut after.accounts {
        // The host's process on the GPU that cannot be read has done nothing more.
        let own = match account.owner.name() {
            "uid-1" => half,
            "uid-2" => SECOND / 4,
            "uid-3" => SECOND / 3,
            "uid-4" => SECOND / 8,
            "4711" => SECOND / 10,
            _ => continue,
        };
        account.used += own;
        advance(&mut account.activity, own);
        *account.energy_uj.get_or_insert(0) += own / 10;
    }
    let mut views = [before, after];
    views.iter_mut().for_each(name_all);
    views
}

fn name_all(view: &mut View) {
    for account in &mut view.accounts {
        if account.owner.name() == "uid-2" {
            account.pod = Some((Arc::from("team-b"), Arc::from("on-mig")));
        }
    }
}

fn advance(activity: &mut Activity, nanos: u64) {
    *activity.engine.get_or_insert(0) += nanos;
    *activity.sm_active.get_or_insert(0) += nanos / 2;
    *activity.sm_occupied.get_or_insert(0) += nanos / 4;
    *activity.tensor.get_or_insert(0) += nanos / 5;
    *activity.dram.get_or_insert(0) += nanos / 8;
}

/// The text after each of the views in turn.
fn text(views: &[View]) -> String {
    let mut dcgm = Dcgm::default();
    let texts: Vec<String> = views.iter().map(|view| dcgm.encode(&Arc::new(view.clone()))).collect();
    texts.last().unwrap().clone()
}

fn read(views: &[View]) -> Vec<Series> {
    super::parse::any_names(&text(views))
}

fn of<'a>(series: &'a [Series], name: &str, gpu: &str) -> Vec<&'a Series> {
    series.iter().filter(|series| series.name == name && series.label("UUID") == gpu).collect()
}

/// Pods and values of a family on a GPU.
fn parts(series: &[Series], name: &str, gpu: &str) -> Vec<(String, f64)> {
    of(series, name, gpu).into_iter().map(|series| (series.label("pod").to_owned(), series.value)).collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * a.abs().max(1.0)
}

#[test]
fn the_exposition_under_dcgms_names_is_as_committed() {
    super::documents::committed("dcgm.golden", &text(&windows()));
}

#[test]
fn names_types_and_labels_are_dcgms() {
    let text = text(&windows());
    let types: BTreeSet<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert_eq!(types, BTreeSet::from(FIELDS), "every family is alive in the sample, and no other");
    for series in super::parse::any_names(&text) {
        assert!(series.labels.keys().map(String::as_str).eq(LABELS), "{series:?}");
    }
}

#[test]
fn scales_are_dcgms() {
    let series = read(&windows());
    let of = |name: &str| parts(&series, name, "GPU-a");
    let trainer = |value: f64| vec![("trainer-0".to_owned(), value)];
    assert_eq!(of("DCGM_FI_DEV_GPU_UTIL"), trainer(50.0), "percent");
    assert_eq!(of("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), trainer(0.5), "a ratio");
    assert_eq!(of("DCGM_FI_DEV_SM_CLOCK"), trainer(1_980.0), "MHz");
    assert!(close(of("DCGM_FI_DEV_POWER_USAGE").iter().map(|(_, watts)| watts).sum(), 350.5), "W");
    assert_eq!(of("DCGM_FI_DEV_FB_FREE"), trainer(40_960.0), "MiB");
    assert_eq!(of("DCGM_FI_DEV_FB_USED"), [("trainer-0".into(), 39_936.0), (String::new(), 1_024.0)], "MiB");
    assert_eq!(of("DCGM_FI_DEV_XID_ERRORS"), trainer(31.0), "the last one, not the highest");
    assert_eq!(of("DCGM_FI_PROF_PCIE_TX_BYTES"), trainer(5_000.0), "bytes a second");
    let energy = of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION");
    assert_eq!(energy[0], ("trainer-0".into(), 51_000.001), "mJ");
}

#[test]
fn the_device_file_is_named_by_its_minor_number() {
    let series = read(&windows());
    assert!(series.iter().all(|series| series.label("device") == "nvidia3" && series.label("gpu") == "0"));
}

#[test]
fn a_shared_devices_value_is_divided_and_the_rest_has_no_pod() {
    let series = read(&windows());
    let shared = parts(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-c");
    assert_eq!(shared.len(), 2, "{shared:?}: the pod that ended is in the rest");
    assert!(close(shared[0].1, 1.0 / 3.0) && close(shared[1].1, 0.5 - 1.0 / 3.0), "{shared:?}");
    assert_eq!((&*shared[0].0, &*shared[1].0), ("server \"7\"", ""));
    assert_eq!(
        parts(&series, "DCGM_FI_DEV_XID_ERRORS", "GPU-c"),
        [(String::new(), 0.0)],
        "not divisible: once"
    );
}

#[test]
fn a_mig_instances_activity_is_a_share_of_the_instance_and_the_board_is_shown_once() {
    let series = read(&windows());
    let engine = of(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-b");
    let found: Vec<_> = engine
        .iter()
        .map(|one| (one.label("GPU_I_ID"), one.label("GPU_I_PROFILE"), one.label("pod"), one.value))
        .collect();
    assert_eq!(
        found,
        [
            ("1", "3g.40gb", "on-mig", 0.25),
            ("1", "3g.40gb", "", 0.25),
            // A Slurm job is no pod.
            ("2", "2g.20gb", "", 0.5),
        ]
    );
    assert!(of(&series, "DCGM_FI_DEV_GPU_UTIL", "GPU-b").is_empty(), "DCGM has none for instances");
    let power = of(&series, "DCGM_FI_DEV_POWER_USAGE", "GPU-b");
    assert!(close(power.iter().map(|one| one.value).sum(), 120.001), "{power:?}");
    let faults = of(&series, "DCGM_FI_DEV_XID_ERRORS", "GPU-b");
    assert_eq!((faults.len(), faults[0].label("GPU_I_ID")), (1, ""));
}

#[test]
fn compute_instances_of_one_gpu_instance_are_told_apart() {
    let [before, mut after] = windows();
    for (device, compute) in after.gpus[1].devices.iter_mut().zip(0..) {
        let instance = device.instance.as_mut().unwrap();
        instance.gpu_instance = 5;
        instance.compute_instance = Some(compute);
    }
    let series = read(&[before, after]);
    let ids: BTreeSet<_> = of(&series, "DCGM_FI_PROF_SM_ACTIVE", "GPU-b")
        .into_iter()
        .map(|series| series.label("GPU_I_ID").to_owned())
        .collect();
    assert_eq!(ids, BTreeSet::from(["5/0".to_owned(), "5/1".to_owned()]));
}

#[test]
fn what_is_not_known_has_no_series() {
    let [before, mut after] = windows();
    assert!(read(&[before.clone(), after.clone()]).iter().all(|series| series.label("UUID") != "GPU-d"));
    // A window without counters: time has passed, and nothing is known of it.
    for device in after
        .gpus
        .iter_mut()
        .zip(&before.gpus)
        .flat_map(|(after, before)| after.devices.iter_mut().zip(&before.devices))
    {
        device.0.profiled = device.1.profiled;
        device.0.activity = device.1.activity;
    }
    let series = read(&[before.clone(), after.clone()]);
    assert!(!series.iter().any(|series| series.name.starts_with("DCGM_FI_PROF_GR")), "{series:?}");
    assert!(series.iter().any(|series| series.name == "DCGM_FI_DEV_GPU_TEMP"));
    // A GPU that is lost has no figures at all.
    after.gpus[0].up = false;
    assert!(read(&[before, after]).iter().all(|series| series.label("UUID") != "GPU-a"));
}

#[test]
fn a_counter_that_reads_nothing_while_the_engine_works_is_not_a_zero() {
    let [before, mut after] = windows();
    after.gpus[0].devices[0].activity.sm_active = before.gpus[0].devices[0].activity.sm_active;
    let series = read(&[before, after]);
    assert!(of(&series, "DCGM_FI_PROF_SM_ACTIVE", "GPU-a").is_empty());
    assert_eq!(parts(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-a").len(), 1);
}

#[test]
fn a_pod_beside_unattributed_work_is_not_called_idle() {
    let [before, mut after] = windows();
    after.gpus[2].devices[0].usage.unattributed += SECOND / 10;
    for (account, old) in after.accounts.iter_mut().zip(&before.accounts) {
        if account.owner.name() == "uid-3" {
            (account.used, account.activity) = (old.used, Activity { engine: Some(0), ..old.activity });
        }
    }
    let series = read(&[before, after]);
    assert_eq!(parts(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-c"), [(String::new(), 0.5)]);
}

#[test]
fn between_two_windows_of_a_gpu_its_figures_stay() {
    let [before, after] = windows();
    let mut later = after.clone();
    later.wall += SECOND / 5;
    let text = |views: &[View]| text(views);
    assert_eq!(text(&[before.clone(), after.clone(), later]), text(&[before, after]));
}

#[test]
fn a_new_pods_first_window_counts_and_an_ended_pods_gauges_are_gone() {
    let [mut before, mut after] = windows();
    let new = |view: &View| view.accounts.iter().position(|account| account.owner.name() == "uid-3").unwrap();
    before.accounts.remove(new(&before));
    let place = new(&after);
    after.accounts[place].activity = Activity { engine: Some(SECOND / 5), ..Activity::default() };
    let series = read(&[before, after.clone()]);
    let shared = parts(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-c");
    assert!(close(shared[0].1, 0.2) && close(shared[1].1, 0.3), "{shared:?}");

    let mut ended = after.clone();
    ended.accounts[place].ended = true;
    let series = read(&[after, ended]);
    let pods: BTreeSet<_> = of(&series, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-c")
        .into_iter()
        .map(|series| series.label("pod").to_owned())
        .collect();
    assert_eq!(pods, BTreeSet::from([String::new()]));
    let energy = parts(&series, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-a");
    assert_eq!(energy.len(), 2, "a counter stays as long as the pod is remembered");
}

#[test]
fn the_rest_of_a_device_stays_once_it_was_there() {
    let [before, after] = windows();
    let mut third = after.clone();
    let gpu = &mut third.gpus[2];
    gpu.elapsed += SECOND;
    gpu.devices[0].profiled += SECOND;
    let shared = |views: &[View]| parts(&read(views), "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU-c");
    let found = shared(&[before, after, third]);
    assert_eq!(found.last().unwrap(), &(String::new(), 0.0), "averages over time must count it: {found:?}");
}

#[test]
fn what_a_neighbouring_exporter_gives_is_left_to_it() {
    let [mut before, mut after] = windows();
    for view in [&mut before, &mut after] {
        for gpu in &mut view.gpus {
            Arc::make_mut(&mut gpu.gpu).authority.sm = Some(Counter::Dcgm);
        }
    }
    let text = text(&[before, after]);
    assert!(text.contains("DCGM_FI_PROF_GR_ENGINE_ACTIVE{"));
    for family in
        ["SM_ACTIVE", "SM_OCCUPANCY", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES"]
    {
        assert!(!text.contains(&format!("DCGM_FI_PROF_{family}{{")), "{family}: {text}");
    }
}
