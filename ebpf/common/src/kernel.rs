//! What the programs must be told about the running kernel: globals that the loader sets, as u32, before it loads.

/// A member of a kernel structure whose place a program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// The global that takes its offset in bytes (of a bit field: of the byte that holds it).
    pub global: &'static str,
    /// For a bit field the global that takes the bit's number in that byte, from the least significant.
    pub bit: Option<&'static str>,
    /// The structure.
    pub of: &'static str,
    /// The member, a path through structures and unnamed members; its names in different kernels, newest first.
    pub members: &'static [&'static str],
    /// Whether the scheduler programs are of no use without it; otherwise the global stays 0 and a class is missing.
    pub required: bool,
}

const fn optional(global: &'static str, of: &'static str, members: &'static [&'static str]) -> Offset {
    Offset { global, bit: None, of, members, required: false }
}

const fn required(global: &'static str, of: &'static str, members: &'static [&'static str]) -> Offset {
    Offset { global, bit: None, of, members, required: true }
}

/// All of them. The same in every flavour.
pub const OFFSETS: &[Offset] = &[
    required("TASK_PID", "task_struct", &["pid"]),
    required("TASK_TGID", "task_struct", &["tgid"]),
    // Renamed in 5.14.
    required("TASK_STATE", "task_struct", &["__state", "state"]),
    Offset {
        global: "TASK_IOWAIT",
        bit: Some("TASK_IOWAIT_BIT"),
        of: "task_struct",
        members: &["in_iowait"],
        required: true,
    },
    // Only with CONFIG_PSI.
    Offset {
        global: "TASK_MEMSTALL",
        bit: Some("TASK_MEMSTALL_BIT"),
        of: "task_struct",
        members: &["in_memstall"],
        required: false,
    },
    // Only with CONFIG_SCHED_INFO.
    optional("TASK_RUN_DELAY", "task_struct", &["sched_info.run_delay"]),
    required("TASK_STACK", "task_struct", &["stack"]),
    // How many threads of a process go on.
    required("TASK_SIGNAL", "task_struct", &["signal"]),
    required("SIGNAL_LIVE", "signal_struct", &["live"]),
    required("TASK_FILES", "task_struct", &["files"]),
    required("FILES_FDT", "files_struct", &["fdt"]),
    required("FDT_MAX", "fdtable", &["max_fds"]),
    required("FDT_FD", "fdtable", &["fd"]),
    required("FILE_INODE", "file", &["f_inode"]),
    required("FILE_PRIVATE", "file", &["private_data"]),
    required("INODE_MODE", "inode", &["i_mode"]),
    required("INODE_SB", "inode", &["i_sb"]),
    required("SB_MAGIC", "super_block", &["s_magic"]),
    required("SOCKET_SK", "socket", &["sk"]),
    required("SOCK_FAMILY", "sock", &["__sk_common.skc_family"]),
    required("SOCK_BACKLOG", "sock", &["sk_max_ack_backlog"]),
    // Whether a connection ends on the machine that it begins on.
    optional("SOCK_PEER", "sock", &["__sk_common.skc_daddr"]),
    optional("SOCK_OWN", "sock", &["__sk_common.skc_rcv_saddr"]),
    // Only with CONFIG_IPV6.
    optional("SOCK_PEER6", "sock", &["__sk_common.skc_v6_daddr"]),
    optional("SOCK_OWN6", "sock", &["__sk_common.skc_v6_rcv_saddr"]),
    // Whether a connection that was accepted is ever answered.
    optional("SOCK_PROTOCOL", "sock", &["sk_protocol"]),
    optional("TCP_SENT", "tcp_sock", &["bytes_sent"]),
    optional("TCP_RECEIVED", "tcp_sock", &["bytes_received"]),
    // What a file is that is in no directory.
    optional("FILE_DENTRY", "file", &["f_path.dentry"]),
    optional("DENTRY_NAME", "dentry", &["d_name.name"]),
    // Which of its files a wait in `epoll_wait` was for.
    optional("EP_READY", "eventpoll", &["rdllist"]),
    optional("ITEM_READY", "epitem", &["rdllink"]),
    optional("ITEM_FILE", "epitem", &["ffd.file"]),
];

/// Global: 1 if the tracepoint `sched_switch` passes the state that the task left in (since 5.18: the BTF type
/// `btf_trace_sched_switch` has five arguments, counting the unnamed first), else 0.
pub const HAS_PREV_STATE: &str = "HAS_PREV_STATE";

/// Global, for the `stack` flavour: where the saved user registers lie in a kernel stack, THREAD_SIZE − 168; 16 less
/// with CONFIG_X86_FRED.
pub const STACK_REGS: &str = "STACK_REGS";

/// THREAD_SIZE (16 KiB without KASAN) less the size of `pt_regs`.
pub const STACK_REGS_X86_64: u32 = 16_384 - 168;

/// Global: 1 if programs can have the kernel write the name of a function, else 0: then waits for swap are not told from
/// those for files.
pub const HAS_NAMES: &str = "HAS_NAMES";

/// The kernel's function that does so, since 5.13: BTF shows whether it is there.
pub const WRITES_NAMES: &str = "bpf_snprintf";

/// Global: 1 if the return programs are attached wherever [`Entry::returns`](crate::calls::Entry::returns) asks for
/// it; 0 if none is, and the end of a call is inferred.
pub const RETURNS: &str = "RETURNS";

/// Global: 1 if the switch programs are attached; 0 if nothing says what threads do, and all of it is unknown.
pub const SWITCHES: &str = "SWITCHES";

/// Global: 1 if the wake-up program is attached: then a wait for a lock that goes on counts as [`doing::POLL`](crate::doing::POLL).
pub const WAKES: &str = "WAKES_SEEN";
