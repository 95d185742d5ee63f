//! Calls of the kernel's `bpf()` that aya does not make: many probe points in one link, and reading maps in batches.
#![allow(unsafe_code, reason = "the one module that calls bpf() itself")]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

use aya::Pod;
use aya_obj::generated::bpf_insn;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_RAW_TP: u32 = 23;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
/// Bytes of the verifier's log that are kept: its end says what it refused.
const LOG: usize = 256 * 1024;

/// `struct { … } /* BPF_PROG_LOAD */` of `union bpf_attr`, up to what is used.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// `struct { … } raw_tracepoint`, as far as programs with types need it.
#[repr(C)]
#[derive(Default)]
struct RawTracepoint {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// `struct { … } link_create`, with its `uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// `struct { … } batch`.
#[repr(C)]
#[derive(Default)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Attributes that the kernel is given: plain numbers, some of which are addresses of what lives as long as the call.
trait Attributes {}
impl Attributes for ProgLoad {}
impl Attributes for RawTracepoint {}
impl Attributes for LinkCreate {}
impl Attributes for Batch {}

fn bpf<A: Attributes>(command: libc::c_int, attributes: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes `size_of::<A>()` bytes of `attributes`, which is exclusively borrowed and
    // for which every bit pattern is valid. What its addresses point to is the callers' duty.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<A>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = i32::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the kernel just gave this descriptor to this call, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr().addr() as u64
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// What a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be attached to many points of a file at once (Linux 6.6 and later).
    Multi,
    /// For the tracepoint whose arguments the kernel describes under this number.
    Tracepoint(u32),
}

/// A program as it is handed to the kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'c> {
    pub name: &'c str,
    pub instructions: &'c [bpf_insn],
    pub license: &'c CStr,
}

/// Loads a program. On failure gives the end of the verifier's log too.
pub(crate) fn load(code: Code<'_>, purpose: Purpose) -> Result<OwnedFd, (io::Error, String)> {
    let (prog_type, expected_attach_type, attach_btf_id) = match purpose {
        Purpose::Multi => (BPF_PROG_TYPE_KPROBE, BPF_TRACE_UPROBE_MULTI, 0),
        Purpose::Tracepoint(number) => (BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, number),
    };
    let Code { name, instructions, license } = code;
    let mut attributes = ProgLoad {
        prog_type,
        insn_cnt: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        insns: address(instructions),
        license: license.as_ptr().addr() as u64,
        expected_attach_type,
        attach_btf_id,
        ..ProgLoad::default()
    };
    // The last byte stays 0.
    for (to, from) in attributes.prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let first = match bpf(BPF_PROG_LOAD, &mut attributes).and_then(descriptor) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // Again for the log, which costs too much to ask for each time.
    let mut log = vec![0_u8; LOG];
    attributes.log_level = 1;
    attributes.log_size = u32::try_from(log.len()).unwrap_or(0);
    attributes.log_buf = log.as_mut_ptr().addr() as u64;
    match bpf(BPF_PROG_LOAD, &mut attributes).and_then(descriptor) {
        Ok(program) => Ok(program),
        Err(_) => Err((first, last_lines(&log))),
    }
}

/// The last lines of a log that is filled up with zeros.
fn last_lines(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

/// Attaches a program to the tracepoint that it was loaded for. Detached when the descriptor is closed.
pub(crate) fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = RawTracepoint { prog_fd: raw(program), ..RawTracepoint::default() };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attributes).and_then(descriptor)
}

/// Attaches a program at `offsets` of the file at `path`, each with its cookie, or at the returns of the functions
/// that begin there. Detached when the descriptor is closed.
pub(crate) fn link_multi(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    returns: bool,
    pid: u32,
) -> io::Result<OwnedFd> {
    debug_assert_eq!(offsets.len(), cookies.len());
    let mut attributes = LinkCreate {
        prog_fd: raw(program),
        attach_type: BPF_TRACE_UPROBE_MULTI,
        path: path.as_ptr().addr() as u64,
        offsets: address(offsets),
        cookies: address(cookies),
        count: u32::try_from(offsets.len().min(cookies.len())).unwrap_or(0),
        multi_flags: if returns { BPF_F_UPROBE_MULTI_RETURN } else { 0 },
        pid,
        ..LinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &mut attributes).and_then(descriptor)
}

/// The bytes of an array, which programs write at the same time.
#[derive(Debug)]
pub(crate) struct Bytes {
    start: NonNull<AtomicU8>,
    length: usize,
}

impl Bytes {
    /// Those of a map that lets itself be mapped and holds at least `length` bytes.
    pub(crate) fn map(map: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which touches no other memory. The kernel refuses more than the map has.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        match NonNull::new(start) {
            Some(whole) if start != libc::MAP_FAILED => Ok(Self { start: whole.cast(), length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// One of them.
    pub(crate) fn get(&self, at: u32) -> Option<&AtomicU8> {
        let at = usize::try_from(at).ok().filter(|at| *at < self.length)?;
        // SAFETY: within the mapping.
        let byte = unsafe { self.start.add(at) };
        // SAFETY: the mapping lives as long as `self`, and everybody writes it a byte at a time.
        Some(unsafe { byte.as_ref() })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, which nobody can borrow any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

// SAFETY: nothing but atomic bytes, which any thread may use.
unsafe impl Send for Bytes {}

/// A value of which every byte is 0.
pub(crate) fn zero<T: Pod>() -> T {
    // SAFETY: `Pod` types are plain bytes, of which any are a value.
    unsafe { std::mem::zeroed() }
}

/// Reads the whole of a hash map, an entry at a time. Entries that come or go meanwhile may be missing.
pub(crate) fn read_all<K: Pod, V: Pod>(map: BorrowedFd<'_>, mut each: impl FnMut(K, V)) -> io::Result<()> {
    // A bucket of the kernel's table is read as a whole, so there must be room for the fullest.
    const MOST: usize = 1 << 20;
    let mut room = 1024;
    let (mut at, mut next) = ([0_u8; 64], [0_u8; 64]);
    let mut first = true;
    let mut keys: Vec<K> = vec![zero(); room];
    let mut values: Vec<V> = vec![zero(); room];
    loop {
        // The kernel writes at most `room` keys and values, all of which are `Pod`, and a position of no more bytes
        // than a key or 4.
        let mut attributes = Batch {
            from: if first { 0 } else { address(&at) },
            to: next.as_mut_ptr().addr() as u64,
            keys: keys.as_mut_ptr().addr() as u64,
            values: values.as_mut_ptr().addr() as u64,
            count: u32::try_from(room).unwrap_or(u32::MAX),
            map_fd: raw(map),
            ..Batch::default()
        };
        let done = match bpf(BPF_MAP_LOOKUP_BATCH, &mut attributes) {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < MOST => {
                room *= 2;
                keys.resize(room, zero());
                values.resize(room, zero());
                continue;
            }
            Err(error) => return Err(error),
        };
        let count = usize::try_from(attributes.count).unwrap_or(0).min(room);
        for (key, value) in keys.iter().zip(&values).take(count) {
            each(*key, *value);
        }
        if done {
            return Ok(());
        }
        at = next;
        first = false;
    }
}

/// Gives memory that was freed back to the system: reading the kernel's types takes tens of megabytes, once.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: has no precondition; it only gives back pages that nothing uses.
    unsafe {
        libc::malloc_trim(0);
    }
}
