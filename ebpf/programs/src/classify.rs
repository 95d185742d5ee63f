//! What a thread waits for, from how it left its CPU: no system call is traced. Its saved user registers say which
//! system call it is in, its files what that call waits for.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use warpmeter_ebpf_common::doing;

use crate::call;
use crate::gaps::log2;
use crate::globals::{
    DENTRY_NAME, EP_READY, FDT_FD, FDT_MAX, FILE_DENTRY, FILE_INODE, FILE_PRIVATE, FILES_FDT, INODE_MODE,
    INODE_SB, ITEM_FILE, ITEM_READY, SB_MAGIC, SOCKET_SK, TASK_FILES, TASK_IOWAIT, TASK_IOWAIT_BIT,
    TASK_MEMSTALL, TASK_MEMSTALL_BIT,
};
use crate::sockets;

/// Places in `pt_regs` of x86-64.
pub const ORIG_AX: u32 = 120;
pub const DI: u32 = 112;
pub const SI: u32 = 104;

/// A member of a kernel structure; zero if it cannot be read.
#[inline(always)]
pub fn read<T: Default>(base: *const u8, offset: u32) -> T {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(offset as usize).cast::<T>()) }.unwrap_or_default()
}

#[inline(always)]
fn pointer(base: *const u8, offset: u32) -> *const u8 {
    read::<u64>(base, offset) as *const u8
}

/// TASK_UNINTERRUPTIBLE.
const UNINTERRUPTIBLE: u32 = 2;

/// Numbers of x86-64's system calls.
mod number {
    pub const READ: i64 = 0;
    pub const WRITE: i64 = 1;
    pub const OPEN: i64 = 2;
    pub const STAT: i64 = 4;
    pub const LSTAT: i64 = 6;
    pub const POLL: i64 = 7;
    pub const MMAP: i64 = 9;
    pub const MPROTECT: i64 = 10;
    pub const MUNMAP: i64 = 11;
    pub const BRK: i64 = 12;
    pub const PREAD64: i64 = 17;
    pub const PWRITE64: i64 = 18;
    pub const READV: i64 = 19;
    pub const WRITEV: i64 = 20;
    pub const ACCESS: i64 = 21;
    pub const SELECT: i64 = 23;
    pub const MREMAP: i64 = 25;
    pub const MSYNC: i64 = 26;
    pub const MADVISE: i64 = 28;
    pub const NANOSLEEP: i64 = 35;
    pub const SENDFILE: i64 = 40;
    pub const CONNECT: i64 = 42;
    pub const ACCEPT: i64 = 43;
    pub const SENDTO: i64 = 44;
    pub const RECVFROM: i64 = 45;
    pub const SENDMSG: i64 = 46;
    pub const RECVMSG: i64 = 47;
    pub const CLONE: i64 = 56;
    pub const VFORK: i64 = 58;
    pub const WAIT4: i64 = 61;
    pub const SEMOP: i64 = 65;
    pub const MSGSND: i64 = 69;
    pub const MSGRCV: i64 = 70;
    pub const FCNTL: i64 = 72;
    pub const FLOCK: i64 = 73;
    pub const FSYNC: i64 = 74;
    pub const FDATASYNC: i64 = 75;
    pub const TRUNCATE: i64 = 76;
    pub const FTRUNCATE: i64 = 77;
    pub const GETDENTS: i64 = 78;
    pub const RENAME: i64 = 82;
    pub const RMDIR: i64 = 84;
    pub const CREAT: i64 = 85;
    pub const UNLINK: i64 = 87;
    pub const SYNC: i64 = 162;
    pub const READAHEAD: i64 = 187;
    pub const FUTEX: i64 = 202;
    pub const IO_GETEVENTS: i64 = 208;
    pub const GETDENTS64: i64 = 217;
    pub const SEMTIMEDOP: i64 = 220;
    pub const FADVISE64: i64 = 221;
    pub const CLOCK_NANOSLEEP: i64 = 230;
    pub const EPOLL_WAIT: i64 = 232;
    pub const MQ_TIMEDSEND: i64 = 242;
    pub const MQ_TIMEDRECEIVE: i64 = 243;
    pub const WAITID: i64 = 247;
    pub const OPENAT: i64 = 257;
    pub const MKDIRAT: i64 = 258;
    pub const NEWFSTATAT: i64 = 262;
    pub const UNLINKAT: i64 = 263;
    pub const RENAMEAT: i64 = 264;
    pub const PSELECT6: i64 = 270;
    pub const PPOLL: i64 = 271;
    pub const SPLICE: i64 = 275;
    pub const SYNC_FILE_RANGE: i64 = 277;
    pub const EPOLL_PWAIT: i64 = 281;
    pub const FALLOCATE: i64 = 285;
    pub const ACCEPT4: i64 = 288;
    pub const PREADV: i64 = 295;
    pub const PWRITEV: i64 = 296;
    pub const RECVMMSG: i64 = 299;
    pub const SYNCFS: i64 = 306;
    pub const SENDMMSG: i64 = 307;
    pub const RENAMEAT2: i64 = 316;
    pub const COPY_FILE_RANGE: i64 = 326;
    pub const PREADV2: i64 = 327;
    pub const PWRITEV2: i64 = 328;
    pub const STATX: i64 = 332;
    pub const IO_PGETEVENTS: i64 = 333;
    pub const IO_URING_ENTER: i64 = 426;
    pub const CLONE3: i64 = 435;
    pub const OPENAT2: i64 = 437;
    pub const EPOLL_PWAIT2: i64 = 441;
    pub const FUTEX_WAITV: i64 = 449;
    pub const FUTEX_WAIT: i64 = 455;
}

/// Whether a system call waits for a lock, or for what is made of one within a process.
#[inline(always)]
pub fn is_futex(number: i64) -> bool {
    matches!(number, number::FUTEX | number::FUTEX_WAITV | number::FUTEX_WAIT)
}

/// The class of a wait of the task that runs. `number` is the system call's, negative outside of one; `first` and `second`
/// its arguments; `swapped` whether a page fault waits for swap.
#[inline(always)]
pub fn wait(
    task: *const u8,
    state: u32,
    number: i64,
    first: u64,
    second: u64,
    swapped: impl Fn() -> bool,
) -> u32 {
    if number == number::IO_URING_ENTER {
        // It says that it waits for I/O whatever it waits for.
        return doing::POLL;
    }
    if TASK_MEMSTALL.load() != 0
        && read::<u8>(task, TASK_MEMSTALL.load()) >> (TASK_MEMSTALL_BIT.load() & 7) & 1 != 0
    {
        return doing::MEMORY;
    }
    let io = read::<u8>(task, TASK_IOWAIT.load()) >> (TASK_IOWAIT_BIT.load() & 7) & 1 != 0;
    let deep = state & UNINTERRUPTIBLE != 0;
    if number < 0 {
        return if io {
            if swapped() { doing::MEMORY } else { doing::DISK_READ }
        } else if deep {
            doing::MEMORY
        } else {
            doing::UNKNOWN
        };
    }
    match number {
        number::FUTEX
        | number::FUTEX_WAITV
        | number::FUTEX_WAIT
        | number::FLOCK
        | number::FCNTL
        | number::SEMOP
        | number::SEMTIMEDOP
        | number::MSGSND
        | number::MSGRCV
        | number::MQ_TIMEDSEND
        | number::MQ_TIMEDRECEIVE
        | number::WAIT4
        | number::WAITID
            if !io =>
        {
            doing::LOCK
        }
        number::EPOLL_WAIT | number::EPOLL_PWAIT | number::EPOLL_PWAIT2 => doing::POLL,
        number::POLL | number::PPOLL if second == 1 => only(task, first),
        number::POLL | number::PPOLL => no_files_else_poll(second),
        number::SELECT | number::PSELECT6 if first != 0 => selected(task, first, second),
        number::SELECT | number::PSELECT6 => doing::TIMER,
        number::NANOSLEEP | number::CLOCK_NANOSLEEP => doing::TIMER,
        number::ACCEPT | number::ACCEPT4 => doing::REQUEST,
        number::READ
        | number::PREAD64
        | number::READV
        | number::PREADV
        | number::PREADV2
        | number::RECVFROM
        | number::RECVMSG
        | number::RECVMMSG
        | number::CONNECT
        | number::GETDENTS
        | number::GETDENTS64
        | number::READAHEAD
        | number::FADVISE64
        | number::SPLICE
        | number::COPY_FILE_RANGE => file(task, first, doing::DISK_READ),
        // What it reads is its second argument; waits are for that more often than for its socket.
        number::SENDFILE => file(task, if io || deep { second } else { first }, doing::DISK_READ),
        number::WRITE
        | number::PWRITE64
        | number::WRITEV
        | number::PWRITEV
        | number::PWRITEV2
        | number::FSYNC
        | number::FDATASYNC
        | number::SYNC_FILE_RANGE
        | number::FALLOCATE
        | number::FTRUNCATE
        | number::SENDTO
        | number::SENDMSG
        | number::SENDMMSG => file(task, first, doing::DISK_WRITE),
        number::IO_GETEVENTS | number::IO_PGETEVENTS => doing::DISK_READ,
        _ if !io && !deep => doing::UNKNOWN,
        number::MSYNC
        | number::SYNC
        | number::SYNCFS
        | number::TRUNCATE
        | number::RENAME
        | number::RENAMEAT
        | number::RENAMEAT2
        | number::RMDIR
        | number::UNLINK
        | number::UNLINKAT
        | number::MKDIRAT
        | number::CREAT => doing::DISK_WRITE,
        _ if io => doing::DISK_READ,
        number::OPEN
        | number::OPENAT
        | number::OPENAT2
        | number::STAT
        | number::LSTAT
        | number::NEWFSTATAT
        | number::STATX
        | number::ACCESS => doing::DISK_READ,
        number::MMAP | number::MPROTECT | number::MUNMAP | number::BRK | number::MREMAP | number::MADVISE => {
            doing::MEMORY
        }
        // Until the child has let go of the address space.
        number::CLONE | number::VFORK | number::CLONE3 => doing::LOCK,
        _ => doing::UNKNOWN,
    }
}

#[inline(always)]
fn no_files_else_poll(files: u64) -> u32 {
    if files == 0 { doing::TIMER } else { doing::POLL }
}

/// The class of a wait for one file, by its `struct pollfd`. The task is the one that runs: its memory can be read.
#[inline(always)]
fn only(task: *const u8, pollfd: u64) -> u32 {
    const POLLIN: u16 = 1;
    const POLLOUT: u16 = 4;
    let events: u16 = call::user(pollfd.wrapping_add(4));
    let writes = events & (POLLIN | POLLOUT) == POLLOUT;
    let disk = if writes { doing::DISK_WRITE } else { doing::DISK_READ };
    polled(open_file(task, call::user::<u32>(pollfd).into()), disk)
}

/// The class of a wait for one file that `poll` or `select` waits for. Which that was cannot be told any more when the wait
/// is over, so that none for a connection within the machine is passed on.
#[inline(always)]
fn polled(file: *const u8, disk: u32) -> u32 {
    known_else_poll(if is_socket(file) {
        sockets::far(socket_of(file), disk == doing::DISK_WRITE)
    } else {
        of_file(file, disk)
    })
}

/// The class of a wait in `select`, if it is to read one file and among the first 256; else [`doing::POLL`]. `set` is
/// the set of files to read.
#[inline(always)]
fn selected(task: *const u8, count: u64, set: u64) -> u32 {
    let (mut files, mut file) = (0_u32, 0);
    for word in 0..4 {
        if word * 64 >= count {
            break;
        }
        let bits: u64 = call::user(set.wrapping_add(word * 8));
        if bits != 0 {
            files += if bits & (bits - 1) == 0 { 1 } else { 2 };
            file = word * 64 + u64::from(log2(bits));
        }
    }
    if files == 1 { polled(open_file(task, file), doing::DISK_READ) } else { doing::POLL }
}

#[inline(always)]
fn known_else_poll(class: u32) -> u32 {
    if class == doing::UNKNOWN { doing::POLL } else { class }
}

/// Whether a system call waits for the files of a set that the kernel keeps.
#[inline(always)]
fn is_epoll(number: i64) -> bool {
    matches!(number, number::EPOLL_WAIT | number::EPOLL_PWAIT | number::EPOLL_PWAIT2)
}

/// A number of the set of files that a system call waits for, of those that its thread waits for; 0 if it has none. `first`
/// is the call's first argument.
#[inline(always)]
pub fn set(number: i64, first: u64) -> u32 {
    if is_epoll(number) { (first as u32).wrapping_add(1) } else { 0 }
}

/// The file that a wait is or was for, of a task that sleeps or wakes: what it reads or writes, or of those of `epoll_wait`
/// the first that is ready. `number` and `first` are its system call's.
#[inline(always)]
pub fn awaited(task: *const u8, number: i64, first: u64) -> Awaited {
    if moves(number) {
        return Awaited::File(open_file(task, first));
    }
    if !is_epoll(number) || ITEM_FILE.load() == 0 {
        return Awaited::Unknown;
    }
    let set = pointer(open_file(task, first), FILE_PRIVATE.load());
    let list = set.wrapping_add(EP_READY.load() as usize);
    let link = pointer(list, 0);
    if link.is_null() {
        return Awaited::Unknown;
    }
    if link == list {
        return Awaited::Nothing;
    }
    let item = link.wrapping_sub(ITEM_READY.load() as usize);
    Awaited::File(pointer(item, ITEM_FILE.load()))
}

/// What a wait was for.
#[derive(Clone, Copy)]
pub enum Awaited {
    File(*const u8),
    /// Its time was up.
    Nothing,
    Unknown,
}

impl Awaited {
    /// Whether it is a connection that was made to this machine itself.
    #[inline(always)]
    pub fn is_local(self) -> bool {
        match self {
            Self::File(file) => is_socket(file) && sockets::is_local(socket_of(file)),
            Self::Nothing | Self::Unknown => false,
        }
    }

    /// The class of the wait, which no thread is known to have ended; [`doing::POLL`] if it cannot be told.
    #[inline(always)]
    pub fn class(self) -> u32 {
        match self {
            Self::File(file) if is_socket(file) => sockets::far(socket_of(file), false),
            Self::File(file) => known_else_poll(of_file(file, doing::DISK_READ)),
            Self::Nothing => doing::TIMER,
            Self::Unknown => doing::POLL,
        }
    }
}

/// Whether a system call moves data between its caller and the file that its first argument names.
#[inline(always)]
pub fn moves(number: i64) -> bool {
    matches!(
        number,
        number::READ
            | number::READV
            | number::RECVFROM
            | number::RECVMSG
            | number::RECVMMSG
            | number::WRITE
            | number::WRITEV
            | number::SENDTO
            | number::SENDMSG
            | number::SENDMMSG
            | number::SENDFILE
    )
}

#[inline(always)]
fn is_socket(file: *const u8) -> bool {
    read::<u16>(pointer(file, FILE_INODE.load()), INODE_MODE.load()) & S_IFMT == S_IFSOCK
}

#[inline(always)]
fn socket_of(file: *const u8) -> *const u8 {
    pointer(pointer(file, FILE_PRIVATE.load()), SOCKET_SK.load())
}

const S_IFMT: u16 = 0o170_000;
const S_IFSOCK: u16 = 0o140_000;
const S_IFREG: u16 = 0o100_000;
const S_IFBLK: u16 = 0o060_000;
const S_IFDIR: u16 = 0o040_000;
const S_IFIFO: u16 = 0o010_000;

/// The class of a wait for a file; `disk` is what it is if the file is on a local disk.
#[inline(always)]
fn file(task: *const u8, descriptor: u64, disk: u32) -> u32 {
    of_file(open_file(task, descriptor), disk)
}

/// A task's open file; null if there is none.
#[inline(always)]
fn open_file(task: *const u8, descriptor: u64) -> *const u8 {
    let table = pointer(pointer(task, TASK_FILES.load()), FILES_FDT.load());
    let descriptor = descriptor as u32;
    if descriptor >= read::<u32>(table, FDT_MAX.load()) {
        return core::ptr::null();
    }
    let slots = pointer(table, FDT_FD.load());
    read::<u64>(slots.wrapping_add(descriptor as usize * 8), 0) as *const u8
}

#[inline(always)]
fn of_file(file: *const u8, disk: u32) -> u32 {
    let inode = pointer(file, FILE_INODE.load());
    match read::<u16>(inode, INODE_MODE.load()) & S_IFMT {
        S_IFSOCK => sockets::class(socket_of(file), disk == doing::DISK_WRITE),
        S_IFIFO => doing::LOCK,
        S_IFBLK => disk,
        kind @ (NONE | S_IFREG | S_IFDIR) => {
            match read::<u64>(pointer(inode, INODE_SB.load()), SB_MAGIC.load()) {
                ANONYMOUS => anonymous(file),
                PROCESSES => doing::LOCK,
                _ if kind == NONE => doing::UNKNOWN,
                magic if is_remote(magic) => doing::NETWORK,
                _ => disk,
            }
        }
        _ => doing::UNKNOWN,
    }
}

/// Files that are in no directory have no type, or in some kernels (6.16, later ones of 6.12) that of regular ones.
const NONE: u16 = 0;
/// Their file system, of linux/magic.h.
const ANONYMOUS: u64 = 0x0904_1934;
/// That of processes as files (since 6.9), of linux/magic.h.
const PROCESSES: u64 = 0x5049_4446;

/// The class of a wait for a file that is in no directory, by the name that the kernel gives it. A function of its own, for
/// the size of the programs.
#[inline(never)]
fn anonymous(file: *const u8) -> u32 {
    const EVENT: u64 = u64::from_le_bytes(*b"[eventfd");
    const TIMER: u64 = u64::from_le_bytes(*b"[timerfd");
    const PROCESS: u64 = u64::from_le_bytes(*b"[pidfd]\0");
    if FILE_DENTRY.load() == 0 {
        return doing::UNKNOWN;
    }
    match read::<u64>(pointer(pointer(file, FILE_DENTRY.load()), DENTRY_NAME.load()), 0) {
        EVENT | PROCESS => doing::LOCK,
        TIMER => doing::TIMER,
        _ => doing::UNKNOWN,
    }
}

/// File systems whose data come through the network (FUSE: object stores), by the numbers of linux/magic.h and of the
/// file systems' own sources.
#[inline(always)]
fn is_remote(magic: u64) -> bool {
    matches!(
        magic as u32,
        0x6969 // NFS
        | 0x6573_5546 // FUSE, virtiofs
        | 0xff53_4d42 // CIFS
        | 0xfe53_4d42 // SMB2
        | 0x517b // SMB
        | 0x00c3_6400 // Ceph
        | 0x0102_1997 // 9p
        | 0x0bd0_0bd0 // Lustre
        | 0x4750_4653 // GPFS
        | 0x1983_0326 // BeeGFS
        | 0x5346_414f // AFS
        | 0x2003_0528 // OrangeFS
    )
}
