//! The `warpmeter-workload` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpmeter_workload::main(std::env::args_os().collect())
}
