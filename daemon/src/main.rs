//! The `warpmeter` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpmeter::cli::main()
}
