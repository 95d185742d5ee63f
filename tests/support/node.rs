//! The tests' processes: this program plays the daemon (`as-warpmeter …`) and its workloads
//! (`as-workload CGROUP_PROCS|- PROGRAM …`).

use std::ffi::OsString;
use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    match arguments.get(1).and_then(|part| part.to_str()) {
        Some("as-warpmeter") => {
            // Its source processes must end with it by their own doing, which is tested.
            if arguments.get(2).is_none_or(|command| command != "nvidia" && command != "bpf") {
                end_with_parent();
            }
            warpmeter::cli::main_as(&["as-warpmeter"])
        }
        Some("as-workload") if arguments.len() > 3 => {
            end_with_parent();
            let cgroup = arguments.remove(2);
            arguments.remove(1);
            // Before the device is opened, as a container runtime does. 0 stands for the writing process.
            if cgroup != "-" && std::fs::write(&cgroup, "0").is_err() {
                return ExitCode::FAILURE;
            }
            warpmeter_workload::main(arguments)
        }
        _ => ExitCode::FAILURE,
    }
}

/// Killed tests leave no process behind. Where that cannot be had, they end when their time is up.
fn end_with_parent() {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap_or_default();
}
