//! Probes on one library.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::LazyLock;

use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use warpmeter_ebpf_common::calls::{Call, ENTRIES, Entry, Group};
use warpmeter_ebpf_common::program;

use crate::elf::{self, ElfError, Function, Place};
use crate::programs::{Attach, Programs};
use crate::{sys, with_causes};

/// Entries by name.
static BY_NAME: LazyLock<HashMap<&'static [u8], usize>> =
    LazyLock::new(|| ENTRIES.iter().enumerate().map(|(at, entry)| (entry.symbol.as_bytes(), at)).collect());

const _: () = {
    let mut at = 0;
    while at < ENTRIES.len() {
        assert!(ENTRIES[at].symbol.len() < elf::NAME);
        at += 1;
    }
};

/// The entries of the driver that a library has.
#[derive(Debug, Clone)]
pub(crate) struct Points {
    points: Vec<(&'static Entry, Function<usize>)>,
}

impl Points {
    /// Those of a file.
    pub(crate) fn of(file: &File) -> Result<Self, ElfError> {
        let found = elf::functions_of(file, |name| BY_NAME.get(name).copied())?;
        let points = found.into_iter().filter_map(|function| Some((ENTRIES.get(function.wanted)?, function)));
        Ok(Self { points: points.collect() })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.points.len()
    }

    /// How many of them are where a probe is cheap.
    pub(crate) fn cheap(&self) -> usize {
        self.points.iter().filter(|(_, function)| function.place != Place::Entry).count()
    }

    /// Whether it can be a driver: kernels can be launched by it.
    pub(crate) fn launches(&self) -> bool {
        self.points.iter().any(|(entry, _)| entry.call == Call::Launch)
    }

    /// Whether a probe of a launch has to be executed out of line.
    pub(crate) fn launch_is_dear(&self) -> bool {
        self.points
            .iter()
            .any(|(entry, function)| entry.symbol == "cuLaunchKernel" && function.place == Place::Entry)
    }
}

/// What is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The ends of calls.
    pub returns: bool,
    /// Questions whether something is complete, which are asked again and again.
    pub questions: bool,
    /// Calls that enqueue work, of which there can be very many.
    pub frequent: bool,
}

/// Probes. Dropped, they are detached.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    links: Vec<OwnedFd>,
    singles: Vec<UProbeLink>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let singles = std::mem::take(&mut self.singles);
        if singles.is_empty() {
            return;
        }
        // Each takes the kernel a tenth of a second. If no thread can be had, it takes ours.
        drop(std::thread::Builder::new().name("detach".into()).spawn(move || drop(singles)));
    }
}

/// Programs with the calls they are for, and whether at their return; in the order in which they are attached: a call
/// that is seen to begin is then seen to end.
const PARTS: [(&str, Group, bool); 5] = [
    (program::STATE_RETURN, Group::State, true),
    (program::BLOCK_RETURN, Group::Block, true),
    (program::STATE, Group::State, false),
    (program::BLOCK, Group::Block, false),
    (program::ENQUEUE, Group::Enqueue, false),
];

impl Programs {
    /// Attaches probes at `points` of a file, in all processes that map it or in one.
    pub(crate) fn attach(
        &mut self,
        file: &File,
        points: &Points,
        extent: Extent,
        process: Option<u32>,
    ) -> Result<Attached, String> {
        let how = self.calls.clone()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut attached = Attached::default();
        for (name, group, returns) in PARTS {
            if returns && !extent.returns || group == Group::Enqueue && !extent.frequent {
                continue;
            }
            let wanted = |entry: &Entry| {
                let asks = matches!(entry.call, Call::StreamQuery | Call::EventQuery);
                entry.group() == group && (!returns || entry.returns()) && (!asks || extent.questions)
            };
            let chosen = points.points.iter().filter(|(entry, _)| wanted(entry));
            let (offsets, cookies): (Vec<u64>, Vec<u64>) =
                chosen.map(|(entry, function)| (function.probe(), entry.cookie())).unzip();
            if offsets.is_empty() {
                continue;
            }
            match how {
                Attach::Multi => {
                    let path = CString::new(path.clone()).map_err(|error| error.to_string())?;
                    let program = self.multi(name)?;
                    let pid = process.unwrap_or(0);
                    let link = sys::link_multi(program, &path, &offsets, &cookies, returns, pid);
                    attached.links.push(link.map_err(|error| format!("{name}: {error}"))?);
                }
                Attach::Single => {
                    let program = self.uprobe(name)?;
                    for (offset, cookie) in offsets.iter().zip(&cookies) {
                        let scope = match process.and_then(std::num::NonZero::new) {
                            Some(pid) => UProbeScope::OneProcess(pid),
                            None => UProbeScope::AllProcesses,
                        };
                        let location = UProbeAttachLocation::AbsoluteOffset(*offset);
                        let point = UProbeAttachPoint { location, cookie: Some(*cookie) };
                        let link = program
                            .attach(point, &path, scope)
                            .and_then(|id| program.take_link(id))
                            .map_err(|error| format!("{name}: {}", with_causes(&error)))?;
                        attached.singles.push(link);
                    }
                }
            }
        }
        Ok(attached)
    }
}

#[cfg(test)]
mod tests;
