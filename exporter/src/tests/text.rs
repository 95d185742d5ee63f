//! What the text says of the sample view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use warpmeter_core::fact::HealthState;
use warpmeter_core::state::State;
use warpmeter_core::time::SECOND;
use warpmeter_core::view::{Residue, View};

use super::parse::{Series, exposition};
use super::sample;
use crate::catalogue::{Level, families};
use crate::encode::Encoder;

fn read(view: &View) -> Vec<Series> {
    exposition(&Encoder::new(Level::Full).encode(view))
}

fn of<'a>(series: &'a [Series], name: &str) -> Vec<&'a Series> {
    series.iter().filter(|series| series.name == name).collect()
}

/// Sums of a family by some labels.
fn sums(series: &[Series], name: &str, by: &[&str]) -> BTreeMap<Vec<String>, f64> {
    let mut sums = BTreeMap::new();
    for series in of(series, name) {
        *sums.entry(by.iter().map(|label| series.label(label).to_owned()).collect()).or_default() +=
            series.value;
    }
    sums
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn every_family_of_the_catalogue_is_alive() {
    let names: BTreeSet<_> = read(&sample::view()).into_iter().map(|series| series.family).collect();
    let dead: Vec<_> = families().map(|family| family.name).filter(|name| !names.contains(*name)).collect();
    assert!(dead.is_empty(), "{dead:?}");
}

#[test]
fn no_counter_of_a_source_vanishes_or_changes_when_it_goes_off() {
    let counters = |view: &View| -> Vec<Series> {
        let mut series = read(view);
        series
            .retain(|series| series.name.starts_with("warpmeter_source_") && series.name.ends_with("_total"));
        series
    };
    let mut view = sample::view();
    let before = counters(&view);
    assert!(before.iter().any(|series| series.name == "warpmeter_source_cpu_seconds_total"));
    for source in view.sources.iter_mut().filter(|source| source.state.is_some()) {
        source.state = Some(HealthState::Off);
    }
    assert_eq!(counters(&view), before);
    let gauges = read(&view);
    for name in ["up", "degraded", "last_fact_timestamp_seconds", "resident_bytes"] {
        assert!(of(&gauges, &format!("warpmeter_source_{name}")).is_empty(), "{name}");
    }
}

#[test]
fn the_states_of_each_gpu_sum_to_its_time() {
    let view = sample::view();
    let sums = sums(&read(&view), "warpmeter_gpu_seconds_total", &["gpu_uuid"]);
    for gpu in &view.gpus {
        let sum = sums[&vec![gpu.gpu.id.to_string()]];
        assert!(close(sum, crate::units::seconds(gpu.elapsed)), "{}: {sum}", gpu.gpu.id);
    }
}

#[test]
fn the_two_ledgers_of_each_device_agree() {
    let series = read(&sample::view());
    let mut used = BTreeMap::<_, f64>::new();
    for kind in ["used", "unattributed", "inactive", "use_unknown"] {
        for (device, sum) in
            sums(&series, &format!("warpmeter_gpu_{kind}_seconds_total"), &["gpu_uuid", "mig"])
        {
            *used.entry(device).or_default() += sum;
        }
    }
    let mut states = sums(&series, "warpmeter_gpu_seconds_total", &["gpu_uuid", "mig"]);
    assert!(
        close(states.remove(&vec!["GPU-b".into(), String::new()]).unwrap(), 30.0),
        "the residue is used by nobody"
    );
    assert_eq!(used.keys().collect::<Vec<_>>(), states.keys().collect::<Vec<_>>());
    assert!(used.values().zip(states.values()).all(|(a, b)| close(*a, *b)), "{used:?} {states:?}");
}

#[test]
fn an_account_has_every_state_and_cause_from_the_start() {
    let series = read(&sample::view());
    for (name, owner, accounts) in
        [("warpmeter_pod_gpu_seconds_total", "pod_uid", 4), ("warpmeter_owner_gpu_seconds_total", "owner", 2)]
    {
        let mut counts = BTreeMap::<_, usize>::new();
        for series in of(&series, name) {
            *counts.entry(series.label(owner)).or_default() += 1;
        }
        assert_eq!(counts.len(), accounts);
        assert!(counts.values().all(|count| *count == State::COUNT), "{counts:?}");
    }
}

#[test]
fn a_gpu_in_mig_mode_has_activity_on_its_instances_and_a_board_once() {
    let series = read(&sample::view());
    let on = |name: &str| -> Vec<String> {
        let series = of(&series, name).into_iter().filter(|series| series.label("gpu_uuid") == "GPU-b");
        series.map(|series| series.labels.get("mig").cloned().unwrap_or_default()).collect()
    };
    for name in
        ["sm_active_seconds_total", "memory_used_bytes", "memory_capacity_bytes", "used_seconds_total"]
    {
        assert_eq!(on(&format!("warpmeter_gpu_{name}")), ["MIG-1", "MIG-2"], "{name}");
    }
    assert_eq!(on("warpmeter_gpu_energy_joules_total"), [""]);
    assert_eq!(on("warpmeter_gpu_up"), [""]);
    assert_eq!(on("warpmeter_gpu_price_per_hour"), [""]);
    assert_eq!(on("warpmeter_gpu_info"), ["", "MIG-1", "MIG-2"]);
    let residue = of(&series, "warpmeter_gpu_seconds_total")
        .into_iter()
        .filter(|series| series.label("gpu_uuid") == "GPU-b" && series.label("mig").is_empty());
    let states: Vec<_> = residue.map(|series| series.label("state")).collect();
    assert_eq!(states, ["unallocated", "unallocatable"]);
}

#[test]
fn a_gpu_that_was_whole_before_it_was_divided_has_one_series_a_state() {
    let mut view = sample::view();
    let mut past = sample::device("GPU-b", None, [1, 0, 0, 0, 2, 0]);
    past.present = false;
    view.gpus[1].devices.insert(0, past);
    view.gpus[1].elapsed += 3 * SECOND;
    // The parser refuses a series that comes twice.
    let sums = sums(&read(&view), "warpmeter_gpu_seconds_total", &["gpu_uuid", "mig", "state"]);
    let of = |state: &str| sums[&vec!["GPU-b".to_owned(), String::new(), state.to_owned()]];
    assert!(close(of("unallocated"), 17.0) && close(of("unallocatable"), 15.0) && close(of("active"), 1.0));
}

#[test]
fn what_is_unknown_has_no_series() {
    let series = read(&sample::view());
    let has = |name: &str, label: &str, value: &str| {
        of(&series, name).iter().any(|series| series.label(label) == value)
    };
    for name in
        ["power_watts", "energy_joules_total", "sm_active_seconds_total", "cost_total", "price_per_hour"]
    {
        let name = format!("warpmeter_gpu_{name}");
        assert!(has(&name, "gpu_uuid", "GPU-a") && !has(&name, "gpu_uuid", "GPU-d"), "{name}");
    }
    assert!(!has("warpmeter_namespace_cost_total", "namespace", ""));
    for name in [
        "up",
        "degraded",
        "last_fact_timestamp_seconds",
        "last_answer_timestamp_seconds",
        "facts_total",
        "values_discarded_total",
    ] {
        let name = format!("warpmeter_source_{name}");
        assert!(has(&name, "source", "host"), "{name}");
        assert!(!has(&name, "source", "daemon"), "{name}: it has not told its state");
        let counts = name.ends_with("_total");
        assert_eq!(has(&name, "source", "pods"), counts, "{name}: it is off, and a counter does not vanish");
    }
    assert!(
        read(&View::default()).iter().all(|series| series.labels.len() <= 1),
        "an empty view is itself only"
    );
}

#[test]
fn what_has_ended_keeps_its_counters_and_loses_its_gauges() {
    let view = sample::view();
    let named: BTreeSet<_> = read(&view)
        .into_iter()
        .filter(|series| series.labels.get("pod_uid").is_some_and(|uid| uid == "uid-4"))
        .collect_names();
    assert!(named.contains("warpmeter_pod_gpu_seconds_total"));
    assert!(named.iter().all(|name| name.ends_with("_total")), "{named:?}");
}

trait Names {
    fn collect_names(self) -> BTreeSet<String>;
}

impl<I: Iterator<Item = Series>> Names for I {
    fn collect_names(self) -> BTreeSet<String> {
        self.map(|series| series.name).collect()
    }
}

#[test]
fn amounts_are_in_base_units() {
    let series = read(&sample::view());
    let one = |name: &str, label: &str, value: &str| {
        of(&series, name).into_iter().find(|series| series.label(label) == value).unwrap().value
    };
    assert!(close(one("warpmeter_gpu_power_watts", "gpu_uuid", "GPU-a"), 350.5));
    assert!(close(one("warpmeter_gpu_sm_clock_hertz", "gpu_uuid", "GPU-a"), 1.98e9));
    assert!(close(one("warpmeter_gpu_energy_joules_total", "gpu_uuid", "GPU-a"), 1234.56789));
    assert!(close(one("warpmeter_gpu_price_per_hour", "gpu_uuid", "GPU-a"), 3.6));
    assert!(close(one("warpmeter_pod_cost_total", "state", "active"), 0.06), "60 s at 3.6 an hour");
    assert!(close(one("warpmeter_pod_allocated_gpus", "mig", "MIG-1"), 3.0 / 7.0), "physical GPUs");
    assert!(close(one("warpmeter_pod_allocated_gpus", "gpu_uuid", "GPU-c"), 0.5));
    assert!(close(one("warpmeter_gpu_last_reading_timestamp_seconds", "gpu_uuid", "GPU-a"), 1_699_999_999.5));
    assert!(close(one("warpmeter_pod_gpu_utilization_ratio", "pod_uid", "uid-1"), 0.526_315_789));
}

#[test]
fn the_level_minimal_is_time_cost_identity_and_health() {
    let text = Encoder::new(Level::Minimal).encode(&sample::view());
    let names: BTreeSet<_> = exposition(&text).into_iter().collect_names();
    for name in
        ["gpu_up", "gpu_seconds_total", "gpu_cost_total", "pod_gpu_seconds_total", "source_up", "pod_info"]
    {
        assert!(names.contains(&format!("warpmeter_{name}")), "{name}");
    }
    assert!(!names.iter().any(|name| name.contains("sm_active") || name.contains("watts")));
}

#[test]
fn what_was_encoded_before_never_shows() {
    let (mut view, empty) = (sample::view(), View::default());
    let mut used = Encoder::new(Level::Full);
    let mut check = |view: &View| assert_eq!(used.encode(view), Encoder::new(Level::Full).encode(view));
    check(&view);
    view.accounts.swap_remove(0);
    view.gpus.remove(0);
    view.gpus[0].residue = Some(Residue::default());
    view.pods[0].name = Some((Arc::from("other"), Arc::from("name")));
    check(&view);
    check(&empty);
    check(&sample::view());
}

#[test]
fn a_histogram_has_rising_bounds_and_counts_and_its_last_bucket_is_its_count() {
    let series = read(&sample::view());
    let name = "warpmeter_pod_gap_duration_seconds";
    let mut buckets = BTreeMap::<_, Vec<(f64, f64)>>::new();
    for bucket in of(&series, &format!("{name}_bucket")) {
        let mut labels = bucket.labels.clone();
        let bound = labels.remove("le").unwrap().replace("+Inf", "inf").parse().unwrap();
        buckets.entry(labels).or_default().push((bound, bucket.value));
    }
    assert_eq!(buckets.len(), 3, "one of each kind: {buckets:?}");
    for (labels, buckets) in buckets {
        let one = |part: &str| {
            let all = of(&series, &format!("{name}{part}"));
            all.into_iter().find(|series| series.labels == labels).unwrap().value
        };
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
        let last = buckets.last().unwrap();
        assert_eq!(last, &(f64::INFINITY, one("_count")));
        match labels["kind"].as_str() {
            "drained" => {
                // One of 2⁰ ns, of 2¹ ns and so on: ten are shorter than 2¹⁰ ns.
                let counts: Vec<f64> = buckets.iter().map(|bucket| bucket.1).collect();
                let below = (10..36).step_by(2).map(f64::from);
                assert_eq!(counts, below.chain([36.0]).collect::<Vec<_>>());
                assert!(close(one("_sum"), 68.719_476_735), "{}", one("_sum"));
            }
            "enqueue" => assert!(close(one("_count"), 123_456.0)),
            _ => assert!(close(one("_count"), 0.0) && close(one("_sum"), 0.0), "none yet is 0"),
        }
    }
}
