//! What a thread waits for, by the system call that it is in.

use warpmeter_core::probe::Doing;

/// What a wait is for, as far as the system call tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Known.
    For(Doing),
    /// This file; if it is on a disk, that is what the thread does.
    File(u32, Doing),
    /// It is in no system call: it has touched memory that is not there.
    Fault,
}

/// What a task's `syscall` file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It runs, or could.
    Running,
    /// It is asleep.
    Asleep(Wait),
}

impl Call {
    /// Parses the text of the file; nothing if that is not understood.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        if text == "running" {
            return Some(Self::Running);
        }
        let mut fields = text.split(' ');
        let number: i64 = fields.next()?.parse().ok()?;
        if number < 0 {
            return Some(Self::Asleep(Wait::Fault));
        }
        let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
        Some(Self::Asleep(wait(number, argument()?, argument()?)))
    }
}

/// What a wait in a system call is for. Calls that may wait for many things, and those that name a path of which the
/// file system is not known, are unknown.
fn wait(number: i64, first: u64, second: u64) -> Wait {
    let file = |disk| u32::try_from(first).map_or(Wait::For(Doing::Unknown), |fd| Wait::File(fd, disk));
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return any_of(second),
        libc::SYS_select => return any_of(first),
        libc::SYS_epoll_wait => return Wait::For(Doing::Poll),
        libc::SYS_getdents => return file(Doing::DiskRead),
        _ => {}
    }
    match number {
        libc::SYS_futex
        | libc::SYS_futex_waitv
        | libc::SYS_flock
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_msgsnd
        | libc::SYS_msgrcv
        | libc::SYS_mq_timedsend
        | libc::SYS_mq_timedreceive
        | libc::SYS_wait4
        | libc::SYS_waitid => Wait::For(Doing::Lock),
        libc::SYS_ppoll => any_of(second),
        libc::SYS_pselect6 => any_of(first),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_io_uring_enter => Wait::For(Doing::Poll),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Wait::For(Doing::Timer),
        libc::SYS_accept | libc::SYS_accept4 => Wait::For(Doing::Request),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_connect
        | libc::SYS_getdents64
        | libc::SYS_readahead
        | libc::SYS_fadvise64 => file(Doing::DiskRead),
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync_file_range
        | libc::SYS_fallocate
        | libc::SYS_ftruncate
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg => file(Doing::DiskWrite),
        _ => Wait::For(Doing::Unknown),
    }
}

/// A wait for any of `files` files: without any, it is for its timeout.
fn any_of(files: u64) -> Wait {
    Wait::For(if files == 0 { Doing::Timer } else { Doing::Poll })
}

/// What a fault waits for, by the function of the kernel that it sleeps in.
pub(super) fn fault(function: &[u8]) -> Doing {
    let function = String::from_utf8_lossy(function);
    // Pages of files and of swap are read alike; those of files are by far the more frequent.
    let reads = ["folio_wait_bit", "folio_lock", "wait_on_page_bit", "filemap_fault"];
    if reads.iter().any(|name| function.contains(name)) {
        Doing::DiskRead
    } else if function.contains("reclaim") || function.contains("mem_cgroup") {
        Doing::Memory
    } else {
        Doing::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asleep(number: i64, first: u64, second: u64) -> Option<Call> {
        let text = format!("{number} {first:#x} {second:#x} 0x20000 0x0 0x0 0x0 0x7ffd 0x7f0c\n");
        Call::parse(text.as_bytes())
    }

    #[test]
    fn a_call_says_what_is_waited_for_or_which_file() {
        let known = |doing| Some(Call::Asleep(Wait::For(doing)));
        assert_eq!(Call::parse(b"running\n"), Some(Call::Running));
        assert_eq!(Call::parse(b"-1 0x7ffd 0x7f0c\n"), Some(Call::Asleep(Wait::Fault)));
        assert_eq!(asleep(libc::SYS_read, 5, 9), Some(Call::Asleep(Wait::File(5, Doing::DiskRead))));
        assert_eq!(asleep(libc::SYS_fsync, 5, 9), Some(Call::Asleep(Wait::File(5, Doing::DiskWrite))));
        assert_eq!(asleep(libc::SYS_futex, 5, 9), known(Doing::Lock));
        assert_eq!(asleep(libc::SYS_ppoll, 0x7fff_0000, 2), known(Doing::Poll));
        assert_eq!(asleep(libc::SYS_ppoll, 0, 0), known(Doing::Timer));
        assert_eq!(
            asleep(libc::SYS_openat, 5, 9),
            known(Doing::Unknown),
            "of which file system is not known"
        );
        assert_eq!(asleep(9999, 5, 9), known(Doing::Unknown));
    }

    #[test]
    fn text_that_is_no_such_file_says_nothing() {
        for text in ["", "\n", "walking", "0", "0 0x1", "0 1 2", "x 0x0 0x0", "99999999999999999999 0x0 0x0"]
        {
            assert_eq!(Call::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_fault_on_a_page_that_is_read_waits_for_a_disk() {
        assert_eq!(fault(b"folio_wait_bit_common"), Doing::DiskRead);
        assert_eq!(fault(b"throttle_direct_reclaim"), Doing::Memory);
        assert_eq!(fault(b"handle_userfault"), Doing::Unknown);
        assert_eq!(fault(b"0"), Doing::Unknown);
    }
}
