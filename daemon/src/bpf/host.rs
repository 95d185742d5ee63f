//! The host as the probes need to know it.

use warpmeter_core::fact::Opened;
use warpmeter_core::identity::{ProcessId, Scope};
use warpmeter_ebpf::Host;

use crate::host::Lookup;

/// Processes by the same reading of `/proc` and cgroups as everywhere in the daemon.
#[derive(Debug)]
pub(super) struct Here(pub Lookup);

impl Host for Here {
    fn process(&mut self, pid: u32) -> Option<(ProcessId, Scope)> {
        self.0.process(pid)
    }

    fn opened(&mut self, pid: u32) -> Option<Opened> {
        self.0.opened(pid)
    }

    fn is_workload(&self, scope: &Scope) -> bool {
        crate::host::is_workload(scope)
    }
}
