//! Properties and cases of the whole fold, through its public face: facts in, views out.

mod cases;
mod node;
mod properties;
