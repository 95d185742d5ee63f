//! Sums of libraries that were injected into processes: an experiment, off unless asked for (`docs/inject.md`).
//!
//! A process that has such a library keeps a page of sums in a memory file. `find` finds it among the open files of
//! processes that use a GPU · `source` reads it once a period and tells what stands there · the page's own crate says
//! what of it can be.
//!
//! All of it is the process's word. It is never mapped, so that its end cannot be met by surprise; nothing is opened
//! before it is known to be memory; and what cannot be is left out, counted and said.

mod find;
mod source;

pub use source::InjectSource;
