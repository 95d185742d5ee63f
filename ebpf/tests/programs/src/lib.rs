//! Loads the kernel programs and reads their maps, for tests and benchmarks.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::multiple_unsafe_ops_per_block,
    reason = "tests: a failed step is a failed test, figures are for people, and system calls come in rows"
)]

pub mod behave;
pub mod bench;
pub mod chains;
pub mod cuda;
pub mod lives;
pub mod pieces;
pub mod swapped;
pub mod tcp;

use std::collections::BTreeMap;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use aya::programs::{BtfTracePoint, RawTracePoint, RawTracePointRunOptions, TestRun as _, UProbe};
use aya::{Ebpf, EbpfLoader};
use warpmeter_ebpf_common::calls::{ENTRIES, Group};
use warpmeter_ebpf_common::{
    Doings, GapKey, GapSum, PAGE, Process, Task, Use, UseKey, WakeKey, WakeSum, doing, drop as dropped,
    kernel, kind, map, program,
};

/// The object, beside its sources.
pub const OBJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../objects/warpmeter.o");

/// Which scheduler programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// BTF tracepoints.
    Fast,
    /// Raw tracepoints.
    Stack,
    /// None.
    None,
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Page([u8; PAGE]);

// SAFETY: bytes.
unsafe impl aya::Pod for Page {}

/// The loaded programs.
#[derive(Debug)]
pub struct Probes {
    bpf: Ebpf,
    returns: bool,
}

/// Whether this process may load programs; says so if not.
pub fn permitted() -> bool {
    // SAFETY: no precondition.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("skipped: loading kernel programs needs root");
    }
    root
}

impl Probes {
    /// Loads and attaches the programs of the scheduler; that of wake-ups if `wakes`.
    pub fn load(flavour: Flavour, returns: bool, wakes: bool) -> Self {
        let object = std::fs::read(OBJECT).unwrap();
        let types = warpmeter_ebpf::btf::Btf::of_kernel().unwrap();
        let mut globals: Vec<(&str, u32)> = Vec::new();
        for offset in kernel::OFFSETS {
            let found = offset.members.iter().find_map(|member| types.member(offset.of, member));
            assert!(found.is_some() || !offset.required, "no {} {:?}", offset.of, offset.members);
            let Some(found) = found else { continue };
            globals.push((offset.global, found.byte()));
            if let Some(bit) = offset.bit {
                globals.push((bit, found.bit()));
            }
        }
        let arguments = types.parameters("btf_trace_sched_switch").unwrap_or(4);
        globals.push((kernel::HAS_PREV_STATE, u32::from(arguments >= 5)));
        globals.push((kernel::HAS_NAMES, u32::from(types.has_function(kernel::WRITES_NAMES))));
        globals.push((kernel::STACK_REGS, kernel::STACK_REGS_X86_64));
        globals.push((kernel::RETURNS, u32::from(returns)));
        globals.push((kernel::SWITCHES, u32::from(flavour != Flavour::None)));
        globals.push((kernel::WAKES, u32::from(wakes)));
        let mut loader = EbpfLoader::new();
        for (name, value) in &globals {
            loader.override_global(name, value, true);
        }
        let mut bpf = loader.load(&object).unwrap();
        let kernel_types = aya::Btf::from_sys_fs().unwrap();
        match flavour {
            Flavour::Fast => {
                for (name, point) in [
                    (program::EXIT_FAST, "sched_process_exit"),
                    (program::FORK_FAST, "sched_process_fork"),
                    (program::EXEC_FAST, "sched_process_exec"),
                    (program::SWITCH_FAST, "sched_switch"),
                    (program::WAKE_FAST, "sched_waking"),
                ] {
                    if name == program::WAKE_FAST && !wakes {
                        continue;
                    }
                    let program: &mut BtfTracePoint = bpf.program_mut(name).unwrap().try_into().unwrap();
                    program.load(point, &kernel_types).unwrap();
                    program.attach().unwrap();
                }
            }
            Flavour::Stack => {
                for (name, point) in [
                    (program::EXIT_STACK, "sched_process_exit"),
                    (program::FORK_STACK, "sched_process_fork"),
                    (program::EXEC_STACK, "sched_process_exec"),
                    (program::SWITCH_STACK, "sched_switch"),
                    (program::WAKE_STACK, "sched_waking"),
                ] {
                    if name == program::WAKE_STACK && !wakes {
                        continue;
                    }
                    let program: &mut RawTracePoint = bpf.program_mut(name).unwrap().try_into().unwrap();
                    program.load().unwrap();
                    program.attach(point).unwrap();
                }
            }
            Flavour::None => {}
        }
        Self { bpf, returns }
    }

    /// Attaches to every entry that `library` exports and `wanted` takes; how many. Trampolines are probed at their
    /// second instruction.
    pub fn attach(&mut self, library: &Path, wanted: impl Fn(&str) -> bool) -> usize {
        self.load_calls();
        let mut count = 0;
        let has_v2 = |symbol: &str| symbol == "cuDeviceGetUuid";
        for entry in ENTRIES {
            if !wanted(entry.symbol) || has_v2(entry.symbol) {
                continue;
            }
            let (entry_program, return_program) = match entry.group() {
                Group::Enqueue => (program::ENQUEUE, None),
                Group::Block => (program::BLOCK, Some(program::BLOCK_RETURN)),
                Group::State => (program::STATE, Some(program::STATE_RETURN)),
            };
            let names = [Some(entry_program), return_program.filter(|_| entry.returns() && self.returns)];
            for name in names.into_iter().flatten() {
                let point = UProbeAttachPoint {
                    location: UProbeAttachLocation::SymbolOffset(entry.symbol, 0x0a),
                    cookie: Some(entry.cookie()),
                };
                let probe: &mut UProbe = self.bpf.program_mut(name).unwrap().try_into().unwrap();
                if probe.attach(point, library, UProbeScope::AllProcesses).is_ok() {
                    count += 1;
                }
            }
        }
        count
    }

    /// Loads the programs of calls: Linux 5.15 and later.
    fn load_calls(&mut self) {
        let bpf = &mut self.bpf;
        for name in [program::FLUSH, program::MARK, program::FORGET] {
            let program: &mut RawTracePoint = bpf.program_mut(name).unwrap().try_into().unwrap();
            program.load().unwrap();
        }
        for name in
            [program::ENQUEUE, program::BLOCK, program::BLOCK_RETURN, program::STATE, program::STATE_RETURN]
        {
            let program: &mut UProbe = bpf.program_mut(name).unwrap().try_into().unwrap();
            program.load().unwrap();
        }
    }

    fn map<K: aya::Pod, V: aya::Pod>(&self, name: &str) -> HashMap<&MapData, K, V> {
        HashMap::try_from(self.bpf.map(name).unwrap()).unwrap()
    }

    /// Follows a thread from its next switch on.
    pub fn track(&mut self, tid: u32, on: bool) {
        let mut pages: Array<_, Page> = Array::try_from(self.bpf.map_mut(map::TRACKED).unwrap()).unwrap();
        let mut page = pages.get(&(tid >> 12), 0).unwrap();
        *page.0.get_mut((tid & 4095) as usize).unwrap() = u8::from(on);
        pages.set(tid >> 12, page, 0).unwrap();
    }

    /// Whether a thread is followed.
    pub fn is_tracked(&self, tid: u32) -> bool {
        let pages: Array<_, Page> = Array::try_from(self.bpf.map(map::TRACKED).unwrap()).unwrap();
        pages.get(&(tid >> 12), 0).unwrap().0[(tid & 4095) as usize] != 0
    }

    /// Sets and clears flags of a process as the loader does.
    pub fn mark(&mut self, tgid: u32, set: u32, clear: u32) {
        self.run(program::MARK, &[u64::from(tgid), u64::from(set), u64::from(clear)]);
    }

    /// Has nothing known of a process's uses, as the loader does.
    pub fn forget(&mut self, tgid: u32) {
        for slot in self.uses(tgid).into_keys() {
            self.run(program::FORGET, &[u64::from(tgid), u64::from(slot)]);
        }
    }

    fn run(&mut self, name: &str, context: &[u64]) {
        let program: &mut RawTracePoint = self.bpf.program_mut(name).unwrap().try_into().unwrap();
        let mut options = RawTracePointRunOptions::new();
        options.args[..context.len()].copy_from_slice(context);
        program.test_run(options).unwrap();
    }

    /// Makes a process's record.
    pub fn declare(&mut self, tgid: u32, flags: u32) {
        let mut processes: HashMap<_, u32, Process> =
            HashMap::try_from(self.bpf.map_mut(map::PROCESSES).unwrap()).unwrap();
        let none = [0; doing::COUNT];
        let process = Process {
            flags,
            contexts: 0,
            cgroup: 0,
            context: 0,
            seen: 1,
            ended: 0,
            callers: none,
            others: none,
            calls: [0; kind::COUNT],
        };
        processes.insert(tgid, process, 0).unwrap();
    }

    /// All threads.
    pub fn tasks(&self) -> BTreeMap<u32, Task> {
        self.map(map::TASKS).iter().map(Result::unwrap).collect()
    }

    /// A process.
    pub fn process(&self, tgid: u32) -> Option<Process> {
        self.map(map::PROCESSES).get(&tgid, 0).ok()
    }

    /// What a process uses, by slot.
    pub fn uses(&self, tgid: u32) -> BTreeMap<u32, Use> {
        let all = self.map::<UseKey, Use>(map::USES);
        all.iter().map(Result::unwrap).filter(|(k, _)| k.tgid == tgid).map(|(k, v)| (k.slot, v)).collect()
    }

    /// A process's gaps.
    pub fn gaps(&self, tgid: u32) -> BTreeMap<GapKey, GapSum> {
        self.map(map::GAPS).iter().map(Result::unwrap).filter(|(k, _): &(GapKey, _)| k.tgid == tgid).collect()
    }

    /// Its gaps of one kind, summed.
    pub fn gaps_of(&self, tgid: u32, kind: u64) -> GapSum {
        let mut sum = GapSum { count: 0, total: 0, ended: 0, lasted: 0, doings: [0; doing::COUNT] };
        for (key, gap) in self.gaps(tgid) {
            if u64::from(key.kind) == kind {
                sum.count += gap.count;
                sum.total += gap.total;
                sum.ended += gap.ended;
                sum.lasted += gap.lasted;
                add(&mut sum.doings, &gap.doings);
            }
        }
        sum
    }

    /// Who waited for whom.
    pub fn wakes(&self) -> BTreeMap<WakeKey, WakeSum> {
        self.map(map::WAKES).iter().map(Result::unwrap).collect()
    }

    /// Cuts the open gap of each of a process's uses.
    pub fn flush(&mut self, tgid: u32, at: u64) {
        let slots: Vec<u32> = self.uses(tgid).into_keys().collect();
        for slot in slots {
            self.run(program::FLUSH, &[u64::from(tgid), u64::from(slot), at]);
        }
    }

    /// The identity that a process got for a device.
    pub fn uuid(&self, tgid: u32, ordinal: u32) -> Option<[u8; 16]> {
        self.map(map::UUIDS).get(&warpmeter_ebpf_common::UuidKey { tgid, ordinal }, 0).ok()
    }

    /// What was left out, by name; nothing that is 0.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let drops: PerCpuArray<_, u64> = PerCpuArray::try_from(self.bpf.map(map::DROPS).unwrap()).unwrap();
        let sum = |at: usize| drops.get(&u32::try_from(at).unwrap(), 0).unwrap().iter().sum();
        dropped::NAMES.iter().enumerate().map(|(at, name)| (*name, sum(at))).filter(|(_, n)| *n > 0).collect()
    }

    /// Runs and nanoseconds of each loaded program, while the kernel keeps statistics.
    pub fn statistics(&self) -> Vec<(String, u64, u64)> {
        let mut all: Vec<_> = self
            .bpf
            .programs()
            .filter_map(|(name, program)| {
                let info = program.info().ok()?;
                Some((name.to_owned(), info.run_count(), u64::try_from(info.run_time().as_nanos()).unwrap()))
            })
            .collect();
        all.sort();
        all
    }
}

/// Adds class by class.
pub fn add(to: &mut Doings, what: &Doings) {
    for (sum, amount) in to.iter_mut().zip(what) {
        *sum += amount;
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// This thread's time on a CPU in nanoseconds.
pub fn cpu_time() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// This thread's id.
pub fn tid() -> u32 {
    // SAFETY: no precondition.
    u32::try_from(unsafe { libc::gettid() }).unwrap()
}
