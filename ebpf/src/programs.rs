//! The kernel programs: loaded as far as this kernel takes them, each kind by itself.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Map, MapData};
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun, UProbe};
use aya::{Ebpf, EbpfLoader};
use aya_obj::Object;
use warpmeter_ebpf_common::kernel::{
    HAS_NAMES, HAS_PREV_STATE, OFFSETS, RETURNS, STACK_REGS, STACK_REGS_X86_64, SWITCHES, WAKES, WRITES_NAMES,
};
use warpmeter_ebpf_common::program;

use crate::btf::{Btf, BtfError};
use crate::sys::{self, Code, Purpose};
use crate::with_causes;

/// The programs, built from `ebpf/programs`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/objects/warpmeter.o"));

/// Programs of probes on the driver library.
const CALLS: [&str; 5] =
    [program::ENQUEUE, program::BLOCK, program::BLOCK_RETURN, program::STATE, program::STATE_RETURN];

/// How the programs on the driver library are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attach {
    /// All points in one link (Linux 6.6).
    Multi,
    /// A perf event for each point; detaching takes a tenth of a second each.
    Single,
}

/// How switches of the scheduler are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// With types, reading the kernel's structures directly (Linux 5.15).
    Fast,
    /// By raw tracepoints, finding registers on the kernel's stack.
    Stack,
}

/// How much of the scheduler is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    Nothing,
    Switches,
    /// Switches and wake-ups.
    Wakes,
}

/// Why nothing could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel's types are not there.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel refused maps or programs.
    #[error("{0}; loading programs takes the capabilities BPF and PERFMON, or root")]
    Refused(String),
    /// Calls of the driver cannot be probed: without them nothing shows a gap.
    #[error("CUDA calls are not probed: {0}")]
    Calls(String),
}

/// The programs and maps in the kernel.
#[derive(Debug)]
pub(crate) struct Programs {
    bpf: Ebpf,
    /// Programs that are attached by many points at once.
    multi: HashMap<&'static str, OwnedFd>,
    /// Links of tracepoints that aya does not hold.
    links: Vec<OwnedFd>,
    /// How the driver library is probed, or why not.
    pub calls: Result<Attach, String>,
    /// How switches are followed, or why not.
    pub switches: Result<Flavour, String>,
    /// Whether wake-ups are followed, or why not.
    pub wakes: Result<(), String>,
    /// Why the fast flavour was not taken.
    pub not_fast: Option<String>,
    /// Why links of many points were not taken.
    pub not_multi: Option<String>,
    /// Whether probes can be kept to single processes.
    pub by_process: bool,
    /// Whether a gap that goes on can be cut at a snapshot, or why not.
    pub flush: Result<(), String>,
}

impl Programs {
    /// Loads everything, and follows the scheduler's switches. `returns`: whether the ends of calls are probed.
    pub(crate) fn load(returns: bool) -> Result<Self, LoadError> {
        // The kernel's types are large, and the loader reads them too: they are let go of before.
        let types = Types::of(&Btf::of_kernel()?);
        sys::trim();
        // What is not followed programs have to know when they are loaded.
        let mut programs = Self::try_load(&types, returns, Follow::Wakes)?;
        if let (Ok(_), Err(why)) = (&programs.switches, &programs.wakes) {
            let why = why.clone();
            programs = Self { wakes: Err(why), ..Self::try_load(&types, returns, Follow::Switches)? };
        }
        if let Err(why) = &programs.switches {
            let why = why.clone();
            programs = Self { switches: Err(why), ..Self::try_load(&types, returns, Follow::Nothing)? };
        }
        sys::trim();
        Ok(programs)
    }

    fn try_load(types: &Types, returns: bool, follow: Follow) -> Result<Self, LoadError> {
        let mut globals = types.globals.clone();
        globals.extend([
            (RETURNS, u32::from(returns)),
            (SWITCHES, u32::from(follow != Follow::Nothing)),
            (WAKES, u32::from(follow == Follow::Wakes)),
        ]);
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        for (name, value) in &globals {
            loader.override_global(name, value, false);
        }
        let bpf = loader.load(OBJECT).map_err(|error| LoadError::Refused(with_causes(&error)))?;
        drop(loader);
        let unknown = "it was not tried";
        let mut programs = Self {
            bpf,
            multi: HashMap::new(),
            links: Vec::new(),
            calls: Err(unknown.into()),
            switches: Err(unknown.into()),
            wakes: Err(unknown.into()),
            not_fast: None,
            not_multi: None,
            by_process: false,
            flush: Err(unknown.into()),
        };
        let raw = programs.relocated(&globals).map_err(LoadError::Refused)?;
        programs.load_calls(&raw);
        if follow != Follow::Nothing {
            programs.switches = match &types.missing {
                Some(member) => Err(format!("the kernel's types do not show {member}")),
                None => programs.follow(&raw, types),
            };
        }
        if follow == Follow::Wakes {
            programs.wakes = match &programs.switches {
                Ok(flavour) => programs.follow_wakes(&raw, types, *flavour),
                Err(_) => Err("switches are not followed".into()),
            };
        }
        programs.flush = [program::FLUSH, program::MARK, program::FORGET]
            .into_iter()
            .try_for_each(|name| programs.raw_tracepoint(name)?.load().map_err(|error| with_causes(&error)));
        Ok(programs)
    }

    /// The programs' instructions, with this kernel's descriptors of the maps in them: what aya keeps to itself.
    fn relocated(&self, globals: &[(&'static str, u32)]) -> Result<Object, String> {
        let mut object = Object::parse(OBJECT).map_err(|error| with_causes(&error))?;
        let values = globals.iter().map(|(name, value)| (*name, value.to_ne_bytes()));
        let values: Vec<_> = values.collect();
        let values = values.iter().map(|(name, value)| (*name, (&value[..], false))).collect();
        object.patch_map_data(values).map_err(|error| with_causes(&error))?;
        let maps = std::mem::take(&mut object.maps);
        let known: Vec<_> = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), fd(self.bpf.map(name)?)?.as_raw_fd(), map)))
            .collect();
        let sections = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(known.into_iter(), &sections).map_err(|error| with_causes(&error))?;
        object.relocate_calls(&sections).map_err(|error| with_causes(&error))?;
        Ok(object)
    }

    fn load_calls(&mut self, raw: &Object) {
        let multi = CALLS.iter().try_for_each(|name| {
            let loaded = load_raw(raw, name, Purpose::Multi)?;
            self.multi.insert(name, loaded);
            Ok(())
        });
        let multi = multi.and_then(|()| self.multi_works());
        let Err(why) = multi else {
            self.calls = Ok(Attach::Multi);
            return;
        };
        self.not_multi = Some(why);
        self.take_single_points();
    }

    /// Has points attached one by one.
    pub(crate) fn take_single_points(&mut self) {
        self.multi.clear();
        let single =
            CALLS.iter().try_for_each(|name| self.uprobe(name)?.load().map_err(|error| with_causes(&error)));
        self.calls = single.map(|()| Attach::Single);
    }

    /// Kernels before 6.6 take the program, whose way of being attached they do not look at, but not the link. Those
    /// that know it say that a directory has no code; and that no process has a negative id, if they can keep a link
    /// to one process with all its threads.
    fn multi_works(&mut self) -> Result<(), String> {
        let program = self.multi.get(program::ENQUEUE).ok_or("it was not loaded")?.as_fd();
        let refusal = |pid| sys::link_multi(program, c"/", &[0], &[0], false, pid).err();
        let is = |error: Option<std::io::Error>, number| {
            error.is_some_and(|error| error.raw_os_error() == Some(number))
        };
        match refusal(0) {
            Some(error) if error.raw_os_error() == Some(libc::EBADF) => {
                self.by_process = is(refusal(u32::MAX), libc::EINVAL);
                Ok(())
            }
            Some(error) => Err(format!("links of many points: {error}")),
            None => Err("a link of many points was made where there is no code".into()),
        }
    }

    fn follow(&mut self, raw: &Object, types: &Types) -> Result<Flavour, String> {
        let loaded = FAST.iter().zip(types.tracepoints).map(|((name, tracepoint), number)| {
            let number = number.ok_or_else(|| format!("there is no {tracepoint}"))?;
            load_raw(raw, name, Purpose::Tracepoint(number))
        });
        let links = loaded.collect::<Result<Vec<_>, _>>().and_then(|programs| {
            let attach = |program: &OwnedFd| sys::attach_tracepoint(program.as_fd());
            programs.iter().map(attach).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())
        });
        match links {
            Ok(links) => {
                self.links = links;
                return Ok(Flavour::Fast);
            }
            Err(why) => self.not_fast = Some(why),
        }
        let stack = [
            (program::FORK_STACK, "sched_process_fork"),
            (program::EXEC_STACK, "sched_process_exec"),
            (program::EXIT_STACK, "sched_process_exit"),
            (program::SWITCH_STACK, "sched_switch"),
        ];
        for (name, tracepoint) in stack {
            let program = self.raw_tracepoint(name)?;
            program.load().map_err(|error| with_causes(&error))?;
            program.attach(tracepoint).map_err(|error| with_causes(&error))?;
        }
        Ok(Flavour::Stack)
    }

    fn follow_wakes(&mut self, raw: &Object, types: &Types, flavour: Flavour) -> Result<(), String> {
        if flavour == Flavour::Fast {
            let number = types.waking.ok_or("there is no btf_trace_sched_waking")?;
            let program = load_raw(raw, program::WAKE_FAST, Purpose::Tracepoint(number))?;
            self.links.push(sys::attach_tracepoint(program.as_fd()).map_err(|error| error.to_string())?);
            return Ok(());
        }
        let program = self.raw_tracepoint(program::WAKE_STACK)?;
        program.load().map_err(|error| with_causes(&error))?;
        program.attach("sched_waking").map_err(|error| with_causes(&error))?;
        Ok(())
    }

    /// Closes the part up to `now` of the gap that is open at a process's device.
    pub(crate) fn flush(&mut self, tgid: u32, slot: u32, now: u64) -> Result<(), String> {
        self.run_once(program::FLUSH, &[u64::from(tgid), u64::from(slot), now])
    }

    /// Sets and clears flags of a process; makes its record if there is none and some are to be set.
    pub(crate) fn mark(&mut self, tgid: u32, set: u32, clear: u32) -> Result<(), String> {
        self.run_once(program::MARK, &[u64::from(tgid), u64::from(set), u64::from(clear)])
    }

    /// Has the kernel know no more of a process's use than that it is one.
    pub(crate) fn forget(&mut self, tgid: u32, slot: u32) -> Result<(), String> {
        self.run_once(program::FORGET, &[u64::from(tgid), u64::from(slot)])
    }

    fn run_once(&mut self, name: &str, context: &[u64]) -> Result<(), String> {
        let mut options = RawTracePointRunOptions::new();
        for (to, from) in options.args.iter_mut().zip(context) {
            *to = *from;
        }
        self.raw_tracepoint(name)?.test_run(options).map(drop).map_err(|error| with_causes(&error))
    }

    pub(crate) fn multi(&self, name: &str) -> Result<BorrowedFd<'_>, String> {
        self.multi.get(name).map(AsFd::as_fd).ok_or_else(|| format!("program {name} is not loaded"))
    }

    pub(crate) fn uprobe(&mut self, name: &str) -> Result<&mut UProbe, String> {
        let program = self.bpf.program_mut(name).ok_or_else(|| format!("there is no program {name}"))?;
        program.try_into().map_err(|error| with_causes(&error))
    }

    fn raw_tracepoint(&mut self, name: &str) -> Result<&mut RawTracePoint, String> {
        let program = self.bpf.program_mut(name).ok_or_else(|| format!("there is no program {name}"))?;
        program.try_into().map_err(|error| with_causes(&error))
    }

    /// Takes a map out.
    pub(crate) fn take_map(&mut self, name: &str) -> Result<Map, LoadError> {
        self.bpf.take_map(name).ok_or_else(|| LoadError::Refused(format!("there is no map {name}")))
    }
}

/// Programs of the fast flavour in the order in which they are attached, and what they are for.
const FAST: [(&str, &str); 4] = [
    (program::FORK_FAST, "btf_trace_sched_process_fork"),
    (program::EXEC_FAST, "btf_trace_sched_process_exec"),
    (program::EXIT_FAST, "btf_trace_sched_process_exit"),
    (program::SWITCH_FAST, "btf_trace_sched_switch"),
];

/// What the programs have to know of the kernel's types.
struct Types {
    /// Globals by name.
    globals: Vec<(&'static str, u32)>,
    /// The first member that is needed and missing.
    missing: Option<String>,
    /// The numbers of what [`FAST`] is for.
    tracepoints: [Option<u32>; FAST.len()],
    /// The number of what [`program::WAKE_FAST`] is for.
    waking: Option<u32>,
}

impl Types {
    fn of(btf: &Btf) -> Self {
        let mut missing = None;
        let has_state = btf.parameters("btf_trace_sched_switch").is_some_and(|count| count >= 5);
        let has_names = btf.has_function(WRITES_NAMES);
        let mut globals = vec![
            (STACK_REGS, STACK_REGS_X86_64),
            (HAS_PREV_STATE, u32::from(has_state)),
            (HAS_NAMES, u32::from(has_names)),
        ];
        for offset in OFFSETS {
            match offset.members.iter().find_map(|path| btf.member(offset.of, path)) {
                Some(member) => {
                    globals.push((offset.global, member.byte()));
                    globals.extend(offset.bit.map(|global| (global, member.bit())));
                }
                None if offset.required => {
                    let path = offset.members.first().copied().unwrap_or_default();
                    missing = missing.or_else(|| Some(format!("{}.{path}", offset.of)));
                }
                None => {}
            }
        }
        Self {
            globals,
            missing,
            tracepoints: FAST.map(|(_, tracepoint)| btf.typedef(tracepoint)),
            waking: btf.typedef("btf_trace_sched_waking"),
        }
    }
}

fn load_raw(object: &Object, name: &str, purpose: Purpose) -> Result<OwnedFd, String> {
    let program = object.programs.get(name).ok_or_else(|| format!("there is no program {name}"))?;
    let function = object.functions.get(&program.function_key()).ok_or("a program has no code")?;
    let license: &CString = &program.license;
    let code = Code { name, instructions: &function.instructions, license };
    sys::load(code, purpose).map_err(|(error, log)| {
        if log.is_empty() { format!("{name}: {error}") } else { format!("{name}: {error}: {log}") }
    })
}

/// A map's descriptor.
pub(crate) fn fd(map: &Map) -> Option<BorrowedFd<'_>> {
    data(map).map(|data| data.fd().as_fd())
}

fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
