//! What the loader says about this kernel and itself; see `warpmeter_ebpf_common::kernel`. The kernel treats them as
//! constants: branches on them cost nothing.

use aya_ebpf::Global;

macro_rules! globals {
    ($($name:ident),* $(,)?) => {
        $(
            #[unsafe(no_mangle)]
            pub static $name: Global<u32> = Global::new(0);
        )*
    };
}

globals!(
    TASK_PID,
    TASK_TGID,
    TASK_STATE,
    TASK_IOWAIT,
    TASK_IOWAIT_BIT,
    TASK_MEMSTALL,
    TASK_MEMSTALL_BIT,
    TASK_RUN_DELAY,
    TASK_STACK,
    TASK_SIGNAL,
    SIGNAL_LIVE,
    TASK_FILES,
    FILES_FDT,
    FDT_MAX,
    FDT_FD,
    FILE_INODE,
    FILE_PRIVATE,
    FILE_DENTRY,
    DENTRY_NAME,
    INODE_MODE,
    INODE_SB,
    SB_MAGIC,
    SOCKET_SK,
    SOCK_FAMILY,
    SOCK_BACKLOG,
    SOCK_PEER,
    SOCK_OWN,
    SOCK_PEER6,
    SOCK_OWN6,
    SOCK_PROTOCOL,
    TCP_SENT,
    TCP_RECEIVED,
    EP_READY,
    ITEM_READY,
    ITEM_FILE,
    HAS_PREV_STATE,
    STACK_REGS,
    HAS_NAMES,
    RETURNS,
    SWITCHES,
    WAKES_SEEN,
);
