"""What a thread waits for, by the system call that it sleeps in and the kind of the file that this is about."""

from doings import DISK_READ, DISK_WRITE, LOCK, MEMORY, NETWORK, POLL, REQUEST, TIMER, UNKNOWN

# Names of x86-64's numbers, of those calls that say something.
X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 6: "lstat", 7: "poll", 9: "mmap", 10: "mprotect", 11: "munmap",
    12: "brk", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 22: "pipe", 23: "select", 25: "mremap",
    26: "msync", 28: "madvise", 32: "dup", 33: "dup2", 35: "nanosleep", 40: "sendfile", 41: "socket", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 53: "socketpair", 56: "clone", 58: "vfork",
    61: "wait4", 65: "semop", 69: "msgsnd", 70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    76: "truncate", 77: "ftruncate", 78: "getdents", 82: "rename", 84: "rmdir", 85: "creat", 87: "unlink", 162: "sync",
    187: "readahead", 202: "futex", 208: "io_getevents", 213: "epoll_create", 217: "getdents64", 220: "semtimedop",
    221: "fadvise64", 230: "clock_nanosleep", 232: "epoll_wait", 233: "epoll_ctl", 242: "mq_timedsend",
    243: "mq_timedreceive", 247: "waitid", 257: "openat", 258: "mkdirat", 262: "newfstatat", 263: "unlinkat",
    264: "renameat", 270: "pselect6", 271: "ppoll", 275: "splice", 277: "sync_file_range", 281: "epoll_pwait",
    283: "timerfd_create", 285: "fallocate", 288: "accept4", 290: "eventfd2", 291: "epoll_create1", 292: "dup3",
    293: "pipe2", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs", 307: "sendmmsg", 316: "renameat2",
    319: "memfd_create", 326: "copy_file_range", 327: "preadv2", 328: "pwritev2", 332: "statx", 333: "io_pgetevents",
    426: "io_uring_enter", 435: "clone3", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}

OTHERS = set("futex futex_waitv futex_wait flock fcntl semop semtimedop msgsnd msgrcv mq_timedsend mq_timedreceive "
             "wait4 waitid".split())
ANY = set("epoll_wait epoll_pwait epoll_pwait2 io_uring_enter".split())
READS = set("read pread64 readv preadv preadv2 recvfrom recvmsg recvmmsg connect getdents getdents64 readahead fadvise64 "
            "splice copy_file_range sendfile".split())
WRITES = set("write pwrite64 writev pwritev pwritev2 fsync fdatasync sync_file_range fallocate ftruncate sendto sendmsg "
             "sendmmsg".split())
# These wait for a disk only where the sleep cannot be interrupted.
DEEP = {
    **dict.fromkeys("msync sync syncfs truncate rename renameat renameat2 rmdir unlink unlinkat mkdirat creat".split(), DISK_WRITE),
    **dict.fromkeys("open openat openat2 stat lstat newfstatat statx access".split(), DISK_READ),
    **dict.fromkeys("mmap mprotect munmap brk mremap madvise".split(), MEMORY),
    **dict.fromkeys("clone vfork clone3".split(), LOCK),
}


def name_of(call):
    """A call's name: given as such, or x86-64's number of it."""
    return call if isinstance(call, str) else X86_64.get(call, f"number {call}")


def wait(call, args, deep, kind_of):
    """The class of a wait in a system call. `deep`: the sleep cannot be interrupted. `kind_of` gives a descriptor's kind."""
    first = args[0] if args else None
    if call in OTHERS:
        return LOCK
    if call in ANY:
        return POLL
    if call in ("poll", "ppoll"):
        return TIMER if args[1:2] == [0] else POLL
    if call in ("select", "pselect6"):
        return TIMER if first == 0 else POLL
    if call in ("nanosleep", "clock_nanosleep"):
        return TIMER
    if call in ("accept", "accept4"):
        return REQUEST
    if call in ("io_getevents", "io_pgetevents"):
        return DISK_READ
    if call == "sendfile" and deep:
        first = args[1] if len(args) > 1 else None
    if call in READS or call in WRITES:
        return of_file(kind_of(first), DISK_READ if call in READS else DISK_WRITE, deep)
    return DEEP.get(call, UNKNOWN) if deep else UNKNOWN


def of_file(kind, disk, deep):
    """The class of a wait for a file of some kind; where that is not known, disks are what one sleeps deeply for."""
    known = {"disk": disk, "local": LOCK, "inet": NETWORK, "accepted": REQUEST, "timer": TIMER}
    return known.get(kind) if kind in known else disk if deep else POLL


class Descriptors:
    """Which kinds of file the descriptors of processes are, as far as the log shows them being made."""

    def __init__(self):
        self.kinds = {}
        self.sets = {}

    def forked(self, parent, child):
        for (process, descriptor), kind in list(self.kinds.items()):
            if process == parent:
                self.kinds[child, descriptor] = kind
        for (process, descriptor), members in list(self.sets.items()):
            if process == parent:
                self.sets[child, descriptor] = set(members)

    def kind(self, process, descriptor):
        return self.kinds.get((process, descriptor))

    def left(self, process, call, args, result):
        """A system call has ended."""
        if result < 0 and call != "connect":
            return
        first = args[0] if args else None
        made = {"open": "disk", "openat": "disk", "openat2": "disk", "creat": "disk", "timerfd_create": "timer"}.get(call)
        if call == "socket":
            made = {1: "local", 2: "inet", 10: "inet", 40: "inet"}.get(first)
        elif call in ("accept", "accept4"):
            made = "local" if self.kind(process, first) == "local" else "accepted"
        elif call in ("dup", "dup2", "dup3") or (call == "fcntl" and args[1:2] in ([0], [1030])):
            made = self.kind(process, first)
        elif call == "close":
            self.kinds.pop((process, first), None)
            self.sets.pop((process, first), None)
            return
        elif call == "epoll_ctl" and len(args) > 2:
            members = self.sets.setdefault((process, first), set())
            (members.discard if args[1] == 2 else members.add)(args[2])
            return
        if made:
            self.kinds[process, result] = made

    def ready(self, process, call, args):
        """The class of a wait for any of several files that no thread ended: known if all that count are of one kind."""
        if call not in ANY or not args:
            return POLL
        kinds = {self.kind(process, descriptor) for descriptor in self.sets.get((process, args[0]), ())}
        classes = {of_file(kind, DISK_READ, False) for kind in kinds if kind not in (None, "local")}
        return classes.pop() if len(classes) == 1 else POLL
