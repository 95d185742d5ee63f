//! What the nvidia process is told, and what it reports.

use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use warpmeter_core::fact::{Fact, Sample, Source};

use crate::clock;
use crate::cupti::PmSampling;

/// What the nvidia process is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to look for the driver's library: absolute paths of directories or files, in order of preference.
    /// Empty stands for [`DEFAULT_LIBRARIES`](crate::DEFAULT_LIBRARIES).
    pub libraries: Vec<PathBuf>,
    /// Time between polls; at least 110 ms, because GPM's samples must be more than 100 ms apart.
    pub period: Duration,
    /// Names, as [`Report::Touch`] gave them, of what hung before and must not be touched again. Unknown names are
    /// ignored.
    pub skip: Vec<String>,
    /// PCI bus ids of the GPUs by index, as last seen, so that one in `skip` is left alone without asking where it
    /// is. Taken at its word only while the driver shows as many GPUs.
    pub known: Vec<String>,
    /// What is wanted of the performance monitors; nothing unless asked for, since each has one owner on the machine.
    pub cupti: Option<PmSampling>,
    /// Whether somebody else gives the SM figures of devices for which nothing of the driver does: DCGM's exporter.
    pub dcgm: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            libraries: Vec::new(),
            period: Duration::from_secs(1),
            skip: Vec::new(),
            known: Vec::new(),
            cupti: None,
            dcgm: false,
        }
    }
}

/// What the nvidia process reports, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A fact.
    Sample(Sample),
    /// Calls that concern this device follow. If nothing else does, the process hangs in them.
    Touch {
        /// The PCI bus id; `index-N` before that is known; [`Report::DRIVER`] for calls that concern no device; `cupti`,
        /// alone or with a PCI bus id after it, for calls of CUPTI.
        pci_bus_id: String,
    },
    /// It is back from them, or waits outside of any.
    Released,
}

impl Report {
    /// The name under which calls to the driver as a whole are announced.
    pub const DRIVER: &'static str = "driver";
}

/// Why the body of the nvidia process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nobody listens any more.
    Closed,
    /// The library's file was exchanged, or the driver went away, while this process cannot let go of the old one:
    /// only a new process can open the new one.
    Outdated,
}

/// The way out: facts get their time and source here, and a closed pipe is remembered.
pub(crate) struct Outlet<'a> {
    emit: &'a mut dyn FnMut(Report) -> ControlFlow<()>,
    closed: bool,
}

impl fmt::Debug for Outlet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(emit: &'a mut dyn FnMut(Report) -> ControlFlow<()>) -> Self {
        Self { emit, closed: false }
    }

    /// Whether nobody listens any more. What is sent after that goes nowhere.
    pub(crate) const fn closed(&self) -> bool {
        self.closed
    }

    /// Sends a fact, observed by now.
    pub(crate) fn fact(&mut self, fact: Fact) {
        self.report(Report::Sample(Sample { at: clock::now(), source: Source::Nvidia, fact }));
    }

    /// Makes calls that concern one device, announced before and after.
    pub(crate) fn touching<T>(&mut self, name: &str, calls: impl FnOnce() -> T) -> T {
        self.report(Report::Touch { pci_bus_id: name.to_owned() });
        let result = calls();
        self.report(Report::Released);
        result
    }

    /// Shows that this process is not stuck.
    pub(crate) fn alive(&mut self) {
        self.report(Report::Released);
    }

    fn report(&mut self, report: Report) {
        if !self.closed {
            self.closed = (self.emit)(report).is_break();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_into_a_closed_pipe() {
        let mut sent = 0;
        let mut emit = |_: Report| {
            sent += 1;
            if sent == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut outlet = Outlet::new(&mut emit);
        assert_eq!(outlet.touching("driver", || 5), 5);
        assert!(outlet.closed());
        outlet.fact(Fact::Poll { took: 1, answered: true });
        assert_eq!(sent, 2);
    }
}
