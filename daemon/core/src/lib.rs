//! What Warpmeter knows and concludes, without any I/O.
//!
//! Sources report [`fact::Fact`]s. [`fold::Fold`] puts them in order of time, cuts time into windows on the
//! boundaries of counter samples, decides whose each nanosecond was ([`allocate`], [`attribute`]) and in which
//! state ([`state`]), prices it ([`price`]) and posts it to the [`ledger`]. Readers get an immutable
//! [`view::View`]. Everything here is a pure function of the facts: no clock, file, environment, thread or
//! float, so that a recording replays to the same figures.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod allocate;
pub mod attribute;
pub mod demand;
pub mod device_id;
pub mod explain;
pub mod fact;
pub mod fold;
pub mod habit;
pub mod identity;
pub mod injected;
pub mod inventory;
pub mod ledger;
pub mod lengths;
pub mod level;
pub mod occupancy;
pub mod peak;
pub mod posting;
pub mod pressure;
pub mod price;
pub mod probe;
pub mod ratio;
pub mod roofline;
pub mod roster;
pub mod sample;
pub mod settings;
pub mod sources;
pub mod split;
pub mod stall;
pub mod state;
pub mod time;
pub mod view;
pub mod window;
pub mod words;
