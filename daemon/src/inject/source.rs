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
/// A library that writes nothing for so long hangs: it writes once a second.
const SILENT: u64 = 10 * SECOND;

/// Rounds in which a page must not stand still before that is said: its writer may be without a CPU.
const TORN: u32 = 3;
/// The most troubles that health says; what a page claims can differ from process to process.
const SAID: usize = 8;

/// A process.
#[derive(Debug)]
struct Watched {
    /// Its page, if it was found.
    file: Option<OwnedFd>,
    /// The sequence of the page that was read last, and when it was new.
    known: Option<(u64, MonoNs)>,
    /// When it is looked at next.
    due: MonoNs,
    /// How long to wait then, while it has no page.
    wait: u64,
    /// Rounds on end in which the page did not stand still.
    torn: u32,
    /// What is the matter with it.
    trouble: Option<String>,
}

/// Reads the pages of processes that have the library in them.
#[derive(Debug)]
pub struct InjectSource {
    proc: PathBuf,
    memory: Option<Memory>,
    processes: BTreeMap<ProcessId, Watched>,
    buffer: Vec<u8>,
}

impl InjectSource {
    /// A source that has read nothing yet; `proc` is the root of the host's process file system.
    pub fn new(proc: PathBuf) -> Self {
        Self { proc, memory: Memory::new(), processes: BTreeMap::new(), buffer: vec![0; BYTES] }
    }

    /// Reads the pages of the processes that use a GPU now, and appends what is new.
    ///
    /// A process is found by its pid. Where another has that by then, its first second can be taken for the old one's:
    /// `users` of the next round no longer has the old one.
    pub fn poll(&mut self, users: &[ProcessId], now: MonoNs, out: &mut Vec<Fact>) {
        self.processes.retain(|id, _| users.contains(id));
        let Some(memory) = self.memory else { return };
        for id in users {
            let watched = self.processes.entry(*id).or_insert_with(|| Watched::new(now));
            if watched.due > now {
                continue;
            }
            let process = directory_of(&self.proc, *id);
            if watched.file.is_none() {
                watched.look(
                    process.as_ref().map_err(|error| *error).and_then(|process| memory.find(process)),
                    now,
                );
            }
            if let (Some(file), Ok(process)) = (&watched.file, &process) {
                let known = watched.known.map(|(sequence, _)| sequence);
                let found = read(file, known, &mut self.buffer);
                watched.take(*id, found, process, now, out);
            }
        }
    }

    /// How it stands: degraded by any library that does nothing and by any page that cannot be.
    pub fn health(&self) -> Health {
        if self.memory.is_none() {
            let reason = "the kernel gives no memory files, by which those of others are known".to_owned();
            return Health { state: HealthState::Down, reason };
        }
        let mut troubles: BTreeMap<&str, usize> = BTreeMap::new();
        for trouble in self.processes.values().filter_map(|watched| watched.trouble.as_deref()) {
            *troubles.entry(trouble).or_default() += 1;
        }
        let said =
            |(trouble, count): (&str, usize)| format!("{count} of the processes that use a GPU: {trouble}");
        let more = troubles.len().saturating_sub(SAID);
        let mut reasons: Vec<String> = troubles.into_iter().take(SAID).map(said).collect();
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        let state = if reasons.is_empty() { HealthState::Up } else { HealthState::Degraded };
        Health { state, reason: reasons.join("; ") }
    }
}

impl Watched {
    fn new(now: MonoNs) -> Self {
        Self { file: None, known: None, due: now, wait: FIRST, torn: 0, trouble: None }
    }

    /// Takes in what a look for its page found.
    fn look(&mut self, found: Result<Option<OwnedFd>, Unread>, now: MonoNs) {
        let denied = matches!(found, Err(Unread::Denied));
        let words = "open files cannot be read: run as root or with CAP_SYS_PTRACE";
        self.file = found.unwrap_or_default();
        if self.file.is_none() {
            self.known = None;
            self.trouble = denied.then(|| words.to_owned());
            self.due = now.plus(self.wait);
            self.wait = (self.wait * 2).min(LAST);
        }
    }

    /// Takes in what was found in its page.
    fn take(
        &mut self,
        id: ProcessId,
        found: Result<Option<(u64, Page)>, Broken>,
        process: &OwnedFd,
        now: MonoNs,
        out: &mut Vec<Fact>,
    ) {
        if found != Err(Broken::Torn) {
            self.torn = 0;
        }
        match found {
            Ok(Some((sequence, page))) if inner_pid(process) == Some(page.pid) => {
                self.known = Some((sequence, now));
                self.trouble = (page.state == State::Off).then(|| page.reason.words(page.detail));
                tell(id, &page, out);
            }
            // Inherited by a child, or handed on: it is another's.
            Ok(Some(_)) => {
                self.file = None;
                self.due = now.plus(LAST);
            }
            Ok(None) => {
                if self.known.is_some_and(|(_, since)| now.since(since) >= SILENT) {
                    // One that has said why it does nothing writes no more.
                    let words = "the injected library no longer writes its page";
                    self.trouble.get_or_insert_with(|| words.to_owned());
                    // It may run another program by now, which has a page of its own.
                    self.file = None;
                    self.due = now.plus(SILENT);
                }
            }
            Err(Broken::Torn) if self.torn < TORN => self.torn += 1,
            Err(broken) => {
                out.push(Fact::Discarded { reason: Discard::Garbage, count: 1 });
                self.trouble = Some(words(broken));
                self.due = now.plus(LAST);
            }
        }
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
    use warpmeter_core::identity::HostPid;

    use super::*;

    #[test]
    fn devices_are_named_as_the_driver_names_them() {
        let bytes =
            [0x20, 0x43, 0x91, 0xa6, 0xfd, 0x59, 0x95, 0x6f, 0xf6, 0x7e, 0xf0, 0xf2, 0xe8, 0x82, 0xf3, 0xd9];
        assert_eq!(uuid("GPU", bytes), "GPU-204391a6-fd59-956f-f67e-f0f2e882f3d9");
    }

    #[test]
    fn processes_without_a_page_are_asked_less_and_less_often() {
        let mut source = InjectSource::new("/proc".into());
        // No process has this pid.
        let nobody = ProcessId { pid: HostPid(0), start: MonoNs(0) };
        let mut out = Vec::new();
        for second in 0..600 {
            source.poll(&[nobody], MonoNs(second * SECOND), &mut out);
        }
        assert!(out.is_empty());
        assert_eq!(source.processes[&nobody].wait, LAST);
        source.poll(&[], MonoNs(700 * SECOND), &mut out);
        assert!(source.processes.is_empty(), "those that are gone are forgotten");
    }

    #[test]
    fn a_library_that_no_longer_writes_is_said_and_looked_for_anew() {
        let id = ProcessId { pid: HostPid(std::process::id()), start: MonoNs(0) };
        let process = directory_of("/proc".as_ref(), id).unwrap();
        let mut watched = Watched { known: Some((2, MonoNs(0))), ..Watched::new(MonoNs(0)) };
        watched.take(id, Ok(None), &process, MonoNs(SILENT - 1), &mut Vec::new());
        assert_eq!((watched.trouble.as_deref(), watched.due), (None, MonoNs(0)));
        watched.take(id, Ok(None), &process, MonoNs(SILENT), &mut Vec::new());
        assert_eq!(watched.trouble.as_deref(), Some("the injected library no longer writes its page"));
        assert!(watched.file.is_none() && watched.due == MonoNs(2 * SILENT));
    }

    #[test]
    fn why_a_library_does_nothing_is_said_for_as_long_as_its_page_is_there() {
        let id = ProcessId { pid: HostPid(std::process::id()), start: MonoNs(0) };
        let process = directory_of("/proc".as_ref(), id).unwrap();
        let off = Some("no libcupti".to_owned());
        let known = Some((2, MonoNs(0)));
        let mut watched = Watched { known, trouble: off.clone(), ..Watched::new(MonoNs(0)) };
        let page = || Ok(Some(rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap()));
        for round in 1..10 {
            let now = MonoNs(round * SILENT);
            watched.take(id, Ok(None), &process, now, &mut Vec::new());
            assert_eq!(watched.trouble, off, "silent");
            watched.look(page(), now);
            assert_eq!(watched.trouble, off, "found again");
        }
        watched.look(Ok(None), MonoNs(10 * SILENT));
        assert_eq!((watched.trouble, watched.known), (None, None), "gone");
    }

    #[test]
    fn a_page_that_is_torn_for_a_moment_is_read_again() {
        let id = ProcessId { pid: HostPid(std::process::id()), start: MonoNs(0) };
        let process = directory_of("/proc".as_ref(), id).unwrap();
        let (mut watched, mut out) = (Watched::new(MonoNs(0)), Vec::new());
        for _ in 0..10 {
            for _ in 0..TORN {
                watched.take(id, Err(Broken::Torn), &process, MonoNs(0), &mut out);
            }
            assert_eq!((watched.trouble.as_deref(), watched.due, out.len()), (None, MonoNs(0), 0));
            watched.take(id, Ok(None), &process, MonoNs(0), &mut out);
        }
        for _ in 0..=TORN {
            watched.take(id, Err(Broken::Torn), &process, MonoNs(0), &mut out);
        }
        assert!(watched.trouble.is_some() && watched.due == MonoNs(LAST) && out.len() == 1);
    }

    #[test]
    fn troubles_are_counted_and_said_until_they_pass() {
        let mut source = InjectSource::new("/proc".into());
        for (pid, trouble) in [(1, Some("a")), (2, Some("b")), (3, Some("a")), (4, None)] {
            let id = ProcessId { pid: HostPid(pid), start: MonoNs(0) };
            let trouble = trouble.map(str::to_owned);
            source.processes.insert(id, Watched { trouble, ..Watched::new(MonoNs(0)) });
        }
        let health = source.health();
        assert_eq!(health.state, HealthState::Degraded);
        assert_eq!(
            health.reason,
            "2 of the processes that use a GPU: a; 1 of the processes that use a GPU: b"
        );
        for pid in 10..100 {
            let id = ProcessId { pid: HostPid(pid), start: MonoNs(0) };
            let trouble = Some(format!("x{pid}"));
            source.processes.insert(id, Watched { trouble, ..Watched::new(MonoNs(0)) });
        }
        let reason = source.health().reason;
        assert!(reason.ends_with("; and 84 more") && reason.len() < 1000, "{reason}");
        source.poll(&[], MonoNs(0), &mut Vec::new());
        assert_eq!(source.health(), Health { state: HealthState::Up, reason: String::new() });
    }
}
