//! What the kernel of this node offers to Warpmeter's probes.
//!
//! The probes name the causes of stalls. Without them Warpmeter still measures use and idleness, and says
//! `unknown/no_evidence` where a cause would stand. This crate asks the kernel, by trying, what a probe could
//! rely on; `warpmeter check` shows the answers.
#![deny(unsafe_code)]

mod attach;
pub mod btf;
pub mod discover;
pub mod elf;
mod governor;
mod kernel;
mod lately;
mod libraries;
mod meter;
mod mounts;
mod people;
mod programs;
mod shares;
mod sys;
mod tables;
mod watch;
mod words;

pub use people::Host;
pub use programs::LoadError;
pub use watch::{Options, Order, run};

use std::path::Path;

use aya::Btf;
use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{is_map_supported, is_program_supported};

/// One thing that probes rely on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// How it works here, where there are several ways; and why not a better one.
    pub mode: String,
    /// Whether it is there; otherwise why not.
    pub state: Result<(), String>,
    /// What would mend its absence.
    pub remedy: &'static str,
}

/// A kind of probe: what it is, what it is for, and what would mend its absence.
type Kind = (&'static str, &'static str, &'static str);

const LOADING: &str =
    "loading programs takes the capabilities BPF and PERFMON, and Linux 5.15 for all of them";
const CALLS: Kind = ("probes of CUDA calls", "launches, copies, gaps", LOADING);
const ENDS: Kind = ("probes of the ends of CUDA calls", "waits for the device", "Linux 6.14 or later");
const SWITCHES: Kind = ("probes of the scheduler", "what threads do in gaps", LOADING);
const WAKES: Kind = ("probes of wake-ups", "what threads wait for each other for", LOADING);
const CUTS: Kind =
    ("cutting gaps at snapshots", "gaps that go on", "without it a gap is reported when it ends");

fn feature(of: Kind, mode: String, state: Result<(), String>) -> Feature {
    let (name, purpose, remedy) = of;
    Feature { name, purpose, mode, state, remedy }
}

/// The same lines as [`probes`], none of which works, since `why`; `remedy` mends them all. Loads nothing.
pub fn no_probes(why: &str, remedy: &'static str) -> Vec<Feature> {
    let none = |(name, purpose, _)| feature((name, purpose, remedy), String::new(), Err(why.to_owned()));
    [CALLS, ENDS, SWITCHES, WAKES, CUTS].map(none).to_vec()
}

/// The probes themselves: loads them all, follows the scheduler for a moment, and lets go again.
pub fn probes() -> Vec<Feature> {
    let no_returns = kernel::returns_are_unsafe();
    let loaded = match programs::Programs::load(no_returns.is_none()) {
        Ok(loaded) => loaded,
        Err(error) => return no_probes(&error.to_string(), LOADING),
    };
    let otherwise = |mode: &str, why: &Option<String>| match why {
        Some(why) => format!("{mode}, since: {why}"),
        None => mode.to_owned(),
    };
    let (calls, calls_mode) = match &loaded.calls {
        Ok(programs::Attach::Multi) => (Ok(()), "all points of a library at once".to_owned()),
        Ok(programs::Attach::Single) => (Ok(()), otherwise("point by point", &loaded.not_multi)),
        Err(why) => (Err(why.clone()), String::new()),
    };
    let (switches, switches_mode) = match &loaded.switches {
        Ok(programs::Flavour::Fast) => (Ok(()), "by types".to_owned()),
        Ok(programs::Flavour::Stack) => (Ok(()), otherwise("by raw tracepoints", &loaded.not_fast)),
        Err(why) => (Err(why.clone()), String::new()),
    };
    vec![
        feature(CALLS, calls_mode, calls),
        feature(ENDS, String::new(), no_returns.map_or(Ok(()), Err)),
        feature(SWITCHES, switches_mode.clone(), switches),
        feature(WAKES, switches_mode, loaded.wakes.clone()),
        feature(CUTS, String::new(), loaded.flush.clone()),
    ]
}

/// The driver libraries that processes map now, below the root `proc` of a process file system. Attaches nothing.
pub fn libraries(proc: &Path) -> Vec<Feature> {
    let processes = discover::Processes::new(proc);
    let mut libraries = libraries::Libraries::default();
    for pid in processes.all().unwrap_or_default() {
        libraries.renew();
        libraries.look(&processes, pid, None);
    }
    let feature = |mode, state| Feature {
        name: "driver library",
        purpose: "mapped by processes",
        mode,
        state,
        remedy: "",
    };
    let found = libraries.list().map(|(name, points, cheap, users)| {
        let mode = format!("{name}: {cheap} of {points} entries where a probe is cheap; {users} processes");
        feature(mode, Ok(()))
    });
    let problems = libraries.problems();
    found.chain(problems.into_iter().map(|problem| feature(String::new(), Err(problem)))).collect()
}

/// Asks the running kernel. `proc` is the root of the host's process file system. Loads and drops trivial
/// programs and maps; attaches nothing.
pub fn features(proc: &Path) -> Vec<Feature> {
    const CAPABILITIES: &str = "add the capabilities BPF and PERFMON, or run as root";
    let program = |name, purpose, kind| Feature {
        name,
        purpose,
        mode: String::new(),
        state: match is_program_supported(kind) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the kernel has no such programs".into()),
            Err(error) => Err(with_causes(&error)),
        },
        remedy: CAPABILITIES,
    };
    let map = |name, purpose, kind| Feature {
        name,
        purpose,
        mode: String::new(),
        state: match is_map_supported(kind) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the kernel has no such maps".into()),
            Err(error) => Err(with_causes(&error)),
        },
        remedy: "Linux 5.8 or later; add the capability BPF, or run as root",
    };
    vec![
        Feature {
            name: "kernel types (BTF)",
            purpose: "offsets of task fields",
            mode: String::new(),
            state: Btf::from_sys_fs().map(|_| ()).map_err(|error| with_causes(&error)),
            remedy: "a kernel built with CONFIG_DEBUG_INFO_BTF",
        },
        program("uprobe programs", "calls of the CUDA driver library", ProgramType::KProbe),
        program("raw tracepoint programs", "scheduler switches and wake-ups", ProgramType::RawTracePoint),
        map("hash maps", "sums by thread, process and gap", MapType::Hash),
        map("hash maps that forget", "streams, events, what threads did of late", MapType::LruHash),
        map("arrays", "which threads are followed", MapType::Array),
        map("per-CPU arrays", "what was left out", MapType::PerCpuArray),
        Feature {
            name: "pressure stall information",
            purpose: "corroboration of waits per pod",
            mode: String::new(),
            state: std::fs::read(proc.join("pressure/cpu")).map(|_| ()).map_err(|error| error.to_string()),
            remedy: "a kernel with CONFIG_PSI, started with psi=1",
        },
    ]
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_probe_is_left_out_where_none_works() {
        let names = |of: Vec<Feature>| of.into_iter().map(|feature| feature.name).collect::<Vec<_>>();
        let none = no_probes("reason", "remedy");
        assert!(none.iter().all(|one| one.state == Err("reason".into()) && one.remedy == "remedy"));
        assert_eq!(names(probes()), names(none));
    }

    #[test]
    fn every_absence_says_why() {
        let directory = std::env::temp_dir().join("no-such-proc");
        let features = features(&directory);
        assert!(features.last().unwrap().state.is_err(), "there is no pressure under an empty root");
        for feature in features {
            if let Err(reason) = feature.state {
                assert!(!reason.is_empty() && !feature.remedy.is_empty(), "{}", feature.name);
            }
        }
    }
}
