//! A simulated GPU node in one command, watched by the real daemon.
fn main() {}
