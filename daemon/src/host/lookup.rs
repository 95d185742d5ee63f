//! Who has a pid now, for those who come upon a pid and want no rounds.

use warpmeter_core::fact::Opened;
use warpmeter_core::identity::{HostPid, ProcessId, Scope};

use super::clock::Clock;
use super::proc::Proc;
use super::reader::{Read, Reader};
use super::source::HostRoots;

/// Looks single processes up.
#[derive(Debug)]
pub struct Lookup {
    reader: Reader,
}

impl Lookup {
    /// A lookup below these roots. Opens nothing.
    pub fn new(roots: &HostRoots) -> Self {
        Self { reader: Reader::new(roots) }
    }

    /// The process that has `pid` now, and whose it is; none if it has ended, or that cannot be told.
    pub fn process(&mut self, pid: u32) -> Option<(ProcessId, Scope)> {
        let root = self.reader.proc.open().ok()?;
        let Read::Process { stat, scope } = self.reader.read(&root, pid) else { return None };
        let start = Clock::read().started(stat.ticks);
        Some((ProcessId { pid: HostPid(pid), start }, scope?))
    }

    /// The GPU device files that the process has open; none if that cannot be told.
    pub fn opened(&mut self, pid: u32) -> Option<Opened> {
        let root = self.reader.proc.open().ok()?;
        let process = Proc::process(&root, pid).ok()?;
        let (scan, _) = self.reader.files(&process);
        scan.ok().filter(|scan| !scan.cut).map(|scan| scan.opened)
    }
}
