//! Families of Warpmeter itself: its version, its sources, what it lost, what it costs.

use warpmeter_core::fact::{Discard, HealthState};
use warpmeter_core::view::{SourceView, View};

use super::{Family, Group, Level, Unit, counter, gauge};
use crate::rows::Rows;
use crate::units;

const SOURCE: &[&str] = &["source"];

pub(super) const GROUP: Group = Group {
    title: "Warpmeter itself",
    about: "A source is a stream of facts: the NVIDIA driver, the host, the pods, their names, the daemon. One \
            that has not told its state yet has no series. One that is off, such as the driver while it is released, \
            keeps its counters and has nothing else.",
    families: FAMILIES,
};

const FAMILIES: &[Family] = &[
    gauge(
        "warpmeter_build_info",
        Unit::Info,
        Level::Minimal,
        &["version"],
        "The version that runs.",
        |_, rows| rows.push(&[crate::VERSION], 1.0),
    ),
    gauge(
        "warpmeter_driver_info",
        Unit::Info,
        Level::Minimal,
        &["driver", "nvml", "cuda"],
        "Versions of the NVIDIA driver, its management library, and the newest CUDA that it supports.",
        |view, rows| {
            if let Some(driver) = &view.driver {
                let [nvml, cuda] =
                    [&driver.nvml, &driver.cuda].map(|version| version.as_deref().unwrap_or(""));
                rows.push(&[&driver.version, nvml, cuda], 1.0);
            }
        },
    ),
    gauge(
        "warpmeter_source_up",
        Unit::Flag,
        Level::Minimal,
        SOURCE,
        "Whether the source gives facts, be it fewer than it could.",
        |view, rows| {
            each(view, rows, |_, state| Some(units::flag(state != HealthState::Down)));
        },
    ),
    gauge(
        "warpmeter_source_degraded",
        Unit::Flag,
        Level::Minimal,
        SOURCE,
        "Whether the source gives fewer facts than it could; /status says why.",
        |view, rows| {
            each(view, rows, |_, state| Some(units::flag(state == HealthState::Degraded)));
        },
    ),
    gauge(
        "warpmeter_source_last_fact_timestamp_seconds",
        Unit::Timestamp,
        Level::Minimal,
        SOURCE,
        "When the source's last fact was observed.",
        |view, rows| {
            each(view, rows, |source, _| {
                source.last_fact.and_then(|at| units::wall(view, at)).map(units::timestamp)
            });
        },
    ),
    gauge(
        "warpmeter_source_last_answer_timestamp_seconds",
        Unit::Timestamp,
        Level::Minimal,
        SOURCE,
        "When the source was last answered in full: what it has told holds as of then, be it new or not. For the pods \
         this is the age of the mapping of pods to devices.",
        |view, rows| {
            each(view, rows, |source, _| {
                source.last_answer.and_then(|at| units::wall(view, at)).map(units::timestamp)
            });
        },
    ),
    counter(
        "warpmeter_source_facts_total",
        Unit::Count,
        Level::Minimal,
        SOURCE,
        "Facts received from the source.",
        |view, rows| count(view, rows, |source| Some(units::count(source.facts))),
    ),
    counter(
        "warpmeter_source_facts_lost_total",
        Unit::Count,
        Level::Minimal,
        SOURCE,
        "Facts of the source that were lost on their way.",
        |view, rows| count(view, rows, |source| Some(units::count(source.lost))),
    ),
    counter(
        "warpmeter_source_values_discarded_total",
        Unit::Count,
        Level::Minimal,
        &["source", "reason"],
        "Values that cannot be right, or came too late, and were left out.",
        |view, rows| {
            for (source, _) in told(view) {
                for (reason, count) in Discard::ALL.into_iter().zip(source.discarded) {
                    rows.push(&[source.source.label(), reason.label()], units::count(count));
                }
            }
        },
    ),
    counter(
        "warpmeter_source_polls_total",
        Unit::Count,
        Level::Standard,
        SOURCE,
        "Rounds that the source finished.",
        |view, rows| count(view, rows, |source| Some(units::count(source.polls))),
    ),
    counter(
        "warpmeter_source_poll_seconds_total",
        Unit::Seconds,
        Level::Standard,
        SOURCE,
        "Time that the source's rounds took.",
        |view, rows| count(view, rows, |source| Some(units::seconds(source.poll_nanos))),
    ),
    counter(
        "warpmeter_source_cpu_seconds_total",
        Unit::Seconds,
        Level::Standard,
        SOURCE,
        "CPU time of the source's own process.",
        |view, rows| count(view, rows, |source| source.own.map(|own| units::seconds(own.cpu))),
    ),
    gauge(
        "warpmeter_source_resident_bytes",
        Unit::Bytes,
        Level::Standard,
        SOURCE,
        "Resident memory of the source's own process.",
        |view, rows| each(view, rows, |source, _| source.own.map(|own| units::count(own.resident))),
    ),
    counter(
        "warpmeter_windows_total",
        Unit::Count,
        Level::Standard,
        &[],
        "Windows closed, over all GPUs.",
        |view, rows| rows.push(&[], units::count(view.windows)),
    ),
    gauge(
        "warpmeter_conservation_error_seconds",
        Unit::Seconds,
        Level::Standard,
        &[],
        "Largest difference between a ledger's sum and the time that passed: always 0.",
        |view, rows| rows.push(&[], units::seconds(view.conservation_error)),
    ),
];

/// Sources that have told a state.
fn told(view: &View) -> impl Iterator<Item = (&SourceView, HealthState)> {
    view.sources.iter().filter_map(|source| source.state.map(|state| (source, state)))
}

/// A gauge of sources: not of those that are off.
fn each(view: &View, rows: &mut Rows<'_>, read: impl Fn(&SourceView, HealthState) -> Option<f64>) {
    for (source, state) in told(view).filter(|(_, state)| *state != HealthState::Off) {
        rows.maybe(&[source.source.label()], read(source, state));
    }
}

/// A counter of sources: it goes on while one is off.
fn count(view: &View, rows: &mut Rows<'_>, read: impl Fn(&SourceView) -> Option<f64>) {
    for (source, _) in told(view) {
        rows.maybe(&[source.source.label()], read(source));
    }
}
