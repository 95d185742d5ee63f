//! Rounds over proc roots that tests made, and over the kernel's.

mod faults;
mod kernel;
mod mps;
mod rounds;
mod tree;
