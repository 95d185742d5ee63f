//! What the `bpf` process may still do once it runs.

use std::collections::BTreeMap;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Why the process could not be confined.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    /// Capabilities could not be read or given up.
    #[error("give up capabilities: {0}")]
    Capabilities(#[from] rustix::io::Errno),
    /// The filter of system calls could not be made or put in force.
    #[error("filter system calls: {0}")]
    Filter(String),
}

/// Capabilities that probes take.
pub(super) const PROBING: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(SAMPLING);
/// Capabilities that samples take.
pub(super) const SAMPLING: CapabilitySet = CapabilitySet::SYS_PTRACE;

/// Gives up all capabilities but those that are `needed`; says which of them are missing.
pub(super) fn keep(needed: CapabilitySet) -> Result<CapabilitySet, ConfineError> {
    let held = capabilities(None)?;
    let keep = held.permitted & needed;
    set_capabilities(
        None,
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() },
    )?;
    Ok(needed & !keep)
}

/// Says what probes take of which these are `missing`.
pub(super) fn without(missing: CapabilitySet) -> String {
    let missing: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
    format!(
        "probes take the capabilities BPF, PERFMON and SYS_PTRACE, of which it lacks {}: add them, or run as root",
        missing.join(", ")
    )
}

/// What probes would lack in this process, if anything. Gives up nothing.
pub(crate) fn lacking() -> Option<String> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.permitted);
    let missing = PROBING & !held;
    (!missing.is_empty()).then(|| without(missing))
}

/// Lays down, in this thread and those that it starts, the capabilities that only the `bpf` process uses; for good if
/// it starts no such process.
pub(crate) fn lay_down(for_good: bool) -> Result<(), rustix::io::Errno> {
    let held = capabilities(None)?;
    let probing = CapabilitySet::BPF.union(CapabilitySet::PERFMON);
    let left = |set: CapabilitySet| if for_good { set & !probing } else { set };
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective & !probing,
            permitted: left(held.permitted),
            inheritable: left(held.inheritable),
        },
    )
}

/// Lets the process make no system calls but those that reading maps and processes and attaching take: no programs,
/// no sockets, no writing of files. Whatever else is tried fails.
pub(super) fn filter() -> Result<(), ConfineError> {
    let failed = |error: seccompiler::Error| ConfineError::Filter(error.to_string());
    let rules = CALLS.iter().map(|number| (*number, Vec::new())).collect::<BTreeMap<_, _>>();
    let refused = rustix::io::Errno::PERM.raw_os_error().unsigned_abs();
    let arch =
        std::env::consts::ARCH.try_into().map_err(|error| failed(seccompiler::Error::Backend(error)))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Errno(refused), SeccompAction::Allow, arch)
        .map_err(|error| failed(seccompiler::Error::Backend(error)))?;
    let program = BpfProgram::try_from(filter).map_err(|error| failed(seccompiler::Error::Backend(error)))?;
    apply_filter(&program).map_err(failed)
}

const CALLS: &[i64] = &[
    // The work.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_ioctl,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_fcntl,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_uname,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    // Memory, threads, time and the end.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_membarrier,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_ppoll,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
