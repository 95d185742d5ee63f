//! `check`: what works on this node, what does not, and what would mend it.
//!
//! It does what `run` does for a few seconds, and tells what came of it.

mod prices;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use warpmeter_core::fact::{HealthState, Source};
use warpmeter_core::inventory::Counter;
use warpmeter_core::view::{GpuView, View};
use warpmeter_cuda::{find_cupti, find_library};
use warpmeter_ebpf::{Feature, features, libraries, no_probes, probes};

use crate::bpf::{self, Enabled};
use crate::config::{Config, Pods};
use crate::endpoint;
use crate::nvidia::Timing;
use crate::run::{self, Options, RunError};

/// How long the node is watched: two windows, and the start of the driver.
const WATCH: Duration = Duration::from_secs(3);

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Works,
    Degraded,
    Missing,
    /// It is not wanted.
    Off,
}

impl Mark {
    const fn text(self) -> &'static str {
        match self {
            Self::Works => "ok      ",
            Self::Degraded => "degraded",
            Self::Missing => "missing ",
            Self::Off => "off     ",
        }
    }
}

/// All findings.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    lines: Vec<(&'static str, Mark, String, String)>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut title = "";
        for (section, mark, what, remedy) in &self.lines {
            if *section != title {
                title = section;
                writeln!(f, "{title}")?;
            }
            writeln!(f, "  {}  {what}", mark.text())?;
            if !remedy.is_empty() {
                writeln!(f, "            → {remedy}")?;
            }
        }
        Ok(())
    }
}

impl Findings {
    fn add(&mut self, section: &'static str, mark: Mark, what: impl Into<String>, remedy: impl Into<String>) {
        self.lines.push((section, mark, what.into(), remedy.into()));
    }
}

/// Looks at everything that `run` would use. `prefix` is that of [`Options`].
pub fn check(config: &Config, prefix: Vec<OsString>) -> Findings {
    let mut findings = Findings::default();
    let free = address(config, &mut findings);
    guard(config, &mut findings);
    library(&config.libraries, &mut findings);
    // A daemon that runs here has the performance monitors, which have one owner.
    let sampled = config.cupti.enabled && free;
    cupti(config, sampled, &mut findings);
    let patience = patience(config);
    let options = Options { duration: Some(WATCH), patience, prefix, ..Options::default() };
    let mut watched = config.clone();
    watched.cupti.enabled = sampled;
    let watched = run::run(&watched, options);
    match watched {
        Ok(page) => node(config, page.view(), &mut findings),
        Err(error) => {
            let remedy = "the findings about GPUs, processes and pods are missing";
            findings.add("node", Mark::Missing, run_failure(&error), remedy);
        }
    }
    for feature in features(&config.proc) {
        kernel(feature, Mark::Missing, &mut findings);
    }
    match config.probes {
        Enabled::No | Enabled::Proc => {
            for feature in no_probes("`[bpf] enabled` says so", "") {
                kernel(feature, Mark::Off, &mut findings);
            }
        }
        Enabled::Auto | Enabled::Yes => {
            // Where they are only a fault if they are demanded, something stands in their place.
            let absent = if config.probes == Enabled::Yes { Mark::Missing } else { Mark::Degraded };
            let lacking = bpf::lacking();
            let remedy = "add the capabilities that are lacking, or run as root";
            let found = lacking.as_deref().map_or_else(probes, |why| no_probes(why, remedy));
            for feature in found {
                kernel(feature, absent, &mut findings);
            }
            if lacking.is_none() {
                for feature in libraries(&config.proc) {
                    kernel(feature, Mark::Degraded, &mut findings);
                }
            }
        }
    }
    findings
}

/// A line about the kernel; `absent` is how it stands if it is not there.
fn kernel(feature: Feature, absent: Mark, findings: &mut Findings) {
    const SECTION: &str = "kernel, for stall causes";
    let mode = if feature.mode.is_empty() { String::new() } else { format!(" ({})", feature.mode) };
    let what = format!("{}: {}{mode}", feature.name, feature.purpose);
    match feature.state {
        Ok(()) => findings.add(SECTION, Mark::Works, what, ""),
        Err(reason) => findings.add(SECTION, absent, format!("{what}: {reason}"), feature.remedy),
    }
}

/// How much longer than [`WATCH`] the slowest source may take to find out that nobody answers it.
fn patience(config: &Config) -> Duration {
    let names = config.names.as_ref().map(|names| names.deadline);
    let kubelet = (run::pods_source(config) == Pods::Kubelet).then_some(config.kubelet.deadline);
    let dcgm = config.dcgm.as_ref().map(|dcgm| dcgm.timeout);
    let slowest = names.into_iter().chain(kubelet).chain(dcgm).fold(Timing::default().hang, Duration::max);
    // Until it has told, and that is seen.
    slowest.saturating_sub(WATCH) + Duration::from_secs(2)
}

fn run_failure(error: &RunError) -> String {
    format!("the node could not be watched: {error}")
}

/// Whether it is free.
fn address(config: &Config, findings: &mut Findings) -> bool {
    let bound = std::net::TcpListener::bind(config.listen);
    match &bound {
        Ok(_) => findings.add("endpoint", Mark::Works, format!("{} is free", config.listen), ""),
        Err(error) => findings.add(
            "endpoint",
            Mark::Missing,
            format!("{}: {error}", config.listen),
            "set [http] listen to a free address; if a warpmeter runs here already, all is well",
        ),
    }
    bound.is_ok()
}

/// What guards it: found out as at the start of `run`.
fn guard(config: &Config, findings: &mut Findings) {
    let options = &config.http;
    match endpoint::open(options) {
        Ok((None, _)) => {}
        Ok((Some(_), _)) if endpoint::token_in_the_clear(options) => findings.add(
            "endpoint",
            Mark::Degraded,
            "the token goes over the wire in the clear",
            "set [http] tls_certificate and tls_key, unless a proxy or a mesh encrypts",
        ),
        Ok((Some(_), _)) => {
            findings.add("endpoint", Mark::Works, "its certificate, key and token can be used", "");
        }
        Err(error) => {
            for line in error.to_string().lines() {
                findings.add("endpoint", Mark::Missing, line, "until then `run` does not start");
            }
        }
    }
}

fn library(candidates: &[PathBuf], findings: &mut Findings) {
    let search = find_library(candidates);
    if let Some(path) = search.found.first() {
        findings.add("driver", Mark::Works, format!("library {}", path.display()), "");
        return;
    }
    findings.add(
        "driver",
        Mark::Missing,
        "no libnvidia-ml.so.1 was found",
        "install the NVIDIA driver, or name the library's directory in [nvidia] libraries; GPU nodes of a \
         cluster keep it under /run/nvidia/driver or /home/kubernetes/bin/nvidia",
    );
    // On a node without a driver each of the usual places is empty, which the line above says well enough.
    for rejected in search.rejected.iter().filter(|_| !candidates.is_empty()) {
        findings.add(
            "driver",
            Mark::Missing,
            format!("{}: {}", rejected.path.display(), rejected.reason),
            "",
        );
    }
}

/// The library that samples performance monitors, where that is wanted; it is `tried` unless a daemon may have them.
fn cupti(config: &Config, tried: bool, findings: &mut Findings) {
    if !config.cupti.enabled {
        return;
    }
    let search = find_cupti(&config.cupti.libraries);
    match search.found.first() {
        Some(path) => {
            findings.add("driver", Mark::Works, format!("PM sampling: library {}", path.display()), "");
            let (mark, what, remedy) = if tried {
                let what =
                    "PM sampling: the performance monitors were taken for these few seconds, and given back";
                (Mark::Works, what.to_owned(), "")
            } else {
                let what = format!(
                    "PM sampling: not tried, since {} is in use: a warpmeter that runs there has the performance monitors",
                    config.listen
                );
                (Mark::Off, what, "see its /status; or stop it, and check again")
            };
            findings.add("driver", mark, what, remedy);
        }
        None => findings.add(
            "driver",
            Mark::Missing,
            "PM sampling: no libcupti was found",
            "install the CUDA toolkit's CUPTI (12.8 or later), or name its directory in [cupti] libraries",
        ),
    }
}

fn node(config: &Config, view: &View, findings: &mut Findings) {
    for source in &view.sources {
        let (section, remedy) = match source.source {
            Source::Nvidia => ("driver", ""),
            Source::Host => ("host processes", ""),
            Source::Pods => ("pods", ""),
            Source::Names => ("pod names", ""),
            Source::Prices => ("prices", ""),
            Source::Probes => ("probes", ""),
            Source::Dcgm => ("DCGM exporter", ""),
            Source::Inject => ("injected libraries", ""),
            Source::Daemon => continue,
        };
        let mark = match source.state {
            Some(HealthState::Up) => Mark::Works,
            Some(HealthState::Degraded) => Mark::Degraded,
            Some(HealthState::Down) => Mark::Missing,
            None if run::expected_sources(config).contains(&source.source) => {
                let seconds = (WATCH + patience(config)).as_secs();
                let what = format!("it has not said within {seconds} s how it stands");
                let remedy = "its first round has not ended: see with WARPMETER_LOG=debug what it waits for";
                findings.add(section, Mark::Missing, what, remedy);
                continue;
            }
            Some(HealthState::Off) | None => continue,
        };
        let what = if source.reason.is_empty() {
            format!("{} facts in {} rounds", source.facts, source.polls)
        } else {
            source.reason.clone()
        };
        findings.add(section, mark, what, remedy);
    }
    if matches!(run::pods_source(config), Pods::None | Pods::Auto) {
        let (mark, what) = if run::settings(config).infer_allocation {
            (
                Mark::Degraded,
                "no source says who holds which device: those hold it who have it open (assumed)",
            )
        } else {
            (Mark::Missing, "no source says who holds which device: all of it counts as unallocated")
        };
        // Who has chosen it needs no advice.
        let remedy = if config.pods == Pods::None {
            "[pods] source is \"none\""
        } else {
            "mount the kubelet's /var/lib/kubelet/pod-resources, or name pods and their devices in a file: [pods] file"
        };
        findings.add("pods", mark, what, remedy);
    }
    if config.names.is_none() {
        let what = "the API server is not asked: pods have no team, app, model or workload";
        findings.add("pod names", Mark::Degraded, what, "set [names] api = true, which needs `list` on pods");
    }
    if let Some(driver) = &view.driver {
        findings.add("driver", Mark::Works, format!("version {}", driver.version), "");
    }
    for gpu in &view.gpus {
        devices(config, gpu, findings);
    }
    prices::prices(config, view, findings);
}

fn devices(config: &Config, gpu: &GpuView, findings: &mut Findings) {
    let name = format!("{} {}", gpu.gpu.model, gpu.gpu.id);
    if let Some(reason) = &gpu.gpu.down {
        findings.add("GPUs", Mark::Missing, format!("{name}: {reason}"), "");
        return;
    }
    let label = |counter: Option<Counter>| counter.map_or("nothing", Counter::label);
    let authority = gpu.gpu.authority;
    let instances = gpu
        .gpu
        .mig
        .as_ref()
        .map_or_else(String::new, |mig| format!(", {} MIG instances", mig.instances.len()));
    let what = format!(
        "{name}{instances}: engine activity from {}, SM activity from {}, processes from {}",
        label(authority.engine),
        label(authority.sm),
        label(authority.processes)
    );
    match (authority.engine, authority.sm) {
        (Some(_), Some(_)) => findings.add("GPUs", Mark::Works, what, ""),
        (Some(_), None) if config.cupti.enabled => findings.add(
            "GPUs",
            Mark::Degraded,
            what,
            "its performance monitor is not sampled here: not tried, not in MIG mode, or not among [cupti] architectures \
             and devices",
        ),
        (Some(_), None) => findings.add(
            "GPUs",
            Mark::Degraded,
            what,
            "SM activity and occupancy take GPM (Hopper and later), [cupti] enabled = true, or a DCGM exporter on this node \
             ([dcgm] url); here only engine activity is known",
        ),
        (None, _) => findings.add(
            "GPUs",
            Mark::Degraded,
            what,
            "this device gives no engine activity (MIG before Hopper): its time is unknown/source_lost",
        ),
    }
}
