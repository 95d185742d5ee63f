//! The pages of all processes that use a GPU, round by round.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use warpmeter_core::fact::{Discard, Fact, Health, HealthState};
use warpmeter_core::identity::{DeviceId, GpuId, MigId, ProcessId};
use warpmeter_core::injected::{Injected, Shape, Sums};
use warpmeter_core::time::{MonoNs, SECOND};
use warpmeter_inject_page::{BYTES, Broken, Device, Page, State};

use super::find::{Memory, directory_of, inner_pid, read};
use crate::host::directory::Unread;

/// How long to wait before a process without a page is looked at again: doubled each time, up to a minute.
const FIRST: u64 = SECOND;
/// The longest of these waits, and that before a page which cannot be is read again.
const LAST: u64 = 60 * SECOND;

/// A process.
#[derive(Debug)]
struct Watched {
    /// Its page, if it was found.
    file: Option<OwnedFd>,
    /// The sequence of the page that was read last.
    known: Option<u64>,
    /// When it is looked at next.
    due: MonoNs,
    /// How long to wait then, while it has no page.
    wait: u64,
    /// What is the matter with it.
    trouble: Option<String>,
}

/// Reads the pages of processes that have the library in them.
#[derive(Debug)]
pub struct InjectSource {
    proc: PathBuf,
    memory: Option<Memory>,
    processes: BTreeMap<ProcessId, Watched>,
    /// Processes whose open files are not shown.
    denied: bool,
    buffer: Box<[u8; BYTES]>,
}

impl InjectSource {
    /// A source that has read nothing yet; `proc` is the root of the host's process file system.
    pub fn new(proc: PathBuf) -> Self {
        Self {
            proc,
            memory: Memory::new(),
            processes: BTreeMap::new(),
            denied: false,
            buffer: Box::new([0; BYTES]),
        }
    }

    /// Reads the pages of the processes that use a GPU now, and appends what is new.
    pub fn poll(&mut self, users: &[ProcessId], now: MonoNs, out: &mut Vec<Fact>) {
        self.processes.retain(|id, _| users.contains(id));
        for id in users {
            let watched = self.processes.entry(*id).or_insert_with(|| Watched {
                file: None,
                known: None,
                due: now,
                wait: FIRST,
                trouble: None,
            });
            if watched.due > now {
                continue;
            }
            if watched.file.is_none()
                && let Some(memory) = self.memory
            {
                match directory_of(&self.proc, *id).and_then(|process| memory.find(&process)) {
                    Ok(found) => watched.file = found,
                    Err(Unread::Denied) => self.denied = true,
                    Err(Unread::Vanished | Unread::Failed(_)) => {}
                }
            }
            let Some(file) = &watched.file else {
                watched.due = now.plus(watched.wait);
                watched.wait = (watched.wait * 2).min(LAST);
                continue;
            };
            match read(file, watched.known, &mut self.buffer) {
                Ok(None) => {}
                Ok(Some((sequence, page))) => {
                    watched.known = Some(sequence);
                    // Inherited by a child, or handed on: it is another's.
                    if directory_of(&self.proc, *id).ok().and_then(|process| inner_pid(&process)) == Some(page.pid) {
                        watched.trouble = (page.state == State::Off).then(|| page.reason.words(page.detail));
                        tell(*id, &page, out);
                    } else {
                        watched.file = None;
                        watched.due = now.plus(LAST);
                    }
                }
                Err(broken) => {
                    out.push(Fact::Discarded { reason: Discard::Garbage, count: 1 });
                    watched.trouble = Some(words(broken));
                    watched.due = now.plus(LAST);
                }
            }
        }
    }

    /// How it stands: degraded by any library that does nothing and by any page that cannot be.
    pub fn health(&self) -> Health {
        let mut troubles: BTreeMap<&str, usize> = BTreeMap::new();
        for trouble in self.processes.values().filter_map(|watched| watched.trouble.as_deref()) {
            *troubles.entry(trouble).or_default() += 1;
        }
        let mut reason = String::new();
        for (trouble, count) in troubles {
            let separator = if reason.is_empty() { "" } else { "; " };
            let _written = write!(reason, "{separator}in {count} of the processes that use a GPU, {trouble}");
        }
        if self.denied {
            let separator = if reason.is_empty() { "" } else { "; " };
            let _written = write!(
                reason,
                "{separator}the open files of some processes cannot be read: run as root or with CAP_SYS_PTRACE"
            );
        }
        let state = match (&self.memory, reason.is_empty()) {
            (None, _) => HealthState::Down,
            (Some(_), true) => HealthState::Up,
            (Some(_), false) => HealthState::Degraded,
        };
        if self.memory.is_none() {
            "the kernel gives no memory files, by which those of others are known".clone_into(&mut reason);
        }
        Health { state, reason }
    }
}

/// What stands in a page, as facts.
fn tell(process: ProcessId, page: &Page, out: &mut Vec<Fact>) {
    for device in &page.devices {
        let sums = Sums {
            elapsed: page.elapsed,
            sampled: page.sampled,
            dropped: page.dropped.saturating_add(page.discarded),
            cpu: page.cpu,
            busy: device.busy,
            ran: device.ran,
            interrupted: device.interrupted,
            kernels: device.kernels,
            kernel: device.nanos,
            late: device.late,
            to_device: device.copies[0].bytes,
            to_host: device.copies[1].bytes,
            other: device.copies[2].bytes,
            copying: device.copies.iter().map(|copied| copied.nanos).fold(0, u64::saturating_add),
            set: device.set.bytes,
        };
        let shape = |shape: &warpmeter_inject_page::Shape| Shape {
            block: shape.block,
            registers: shape.registers,
            shared: shape.shared,
            nanos: shape.nanos,
        };
        out.push(Fact::Injected(Box::new(Injected {
            process,
            device: name(device),
            capability: device.capability,
            sums,
            shapes: device.shapes.iter().map(shape).collect(),
        })));
    }
}

/// A device by the names that the driver writes for its UUIDs.
fn name(device: &Device) -> DeviceId {
    let mig = device.mig.map(|mig| MigId::new(uuid("MIG", mig)));
    DeviceId { gpu: GpuId::new(uuid("GPU", device.uuid)), mig }
}

fn uuid(prefix: &str, bytes: [u8; 16]) -> String {
    let mut text = prefix.to_owned();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _written = write!(text, "{byte:02x}");
    }
    text
}

/// Why a page is not believed.
fn words(broken: Broken) -> String {
    match broken {
        Broken::Size | Broken::Magic => "what is called a page of sums is none".to_owned(),
        Broken::Version(version) => format!("the injected library is of another version (page {version})"),
        Broken::Torn => "the page of sums never stands still".to_owned(),
        Broken::Number(what) => format!("the page of sums cannot be ({what})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_the_driver_names_them() {
        let bytes = [0x20, 0x43, 0x91, 0xa6, 0xfd, 0x59, 0x95, 0x6f, 0xf6, 0x7e, 0xf0, 0xf2, 0xe8, 0x82, 0xf3, 0xd9];
        assert_eq!(uuid("GPU", bytes), "GPU-204391a6-fd59-956f-f67e-f0f2e882f3d9");
    }

    #[test]
    fn processes_without_a_page_are_asked_less_and_less_often() {
        let mut source = InjectSource::new("/proc".into());
        let own = ProcessId { pid: warpmeter_core::identity::HostPid(std::process::id()), start: MonoNs(0) };
        let mut out = Vec::new();
        for second in 0..600 {
            source.poll(&[own], MonoNs(second * SECOND), &mut out);
        }
        assert!(out.is_empty());
        assert_eq!(source.processes[&own].wait, LAST);
        source.poll(&[], MonoNs(700 * SECOND), &mut out);
        assert!(source.processes.is_empty(), "those that are gone are forgotten");
    }
}
