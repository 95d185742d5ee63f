//! Gives the library the name that programs load it by.

use std::io::Write;

fn main() -> std::io::Result<()> {
    writeln!(std::io::stdout(), "cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.12")
}
