//! Rounds over proc roots that tests made, and over the kernel's.

mod faults;
mod kernel;
mod rounds;
mod tree;
