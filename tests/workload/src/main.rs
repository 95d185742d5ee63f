//! Programs of known behaviour that occupy a simulated GPU.
fn main() {}
