#!/usr/bin/env python3
"""A file whose reads and writes take their time, one after the other, as those of a disk do: for a loop device.

What cgroups allow of a device is saved up for a tenth of a second, so that a throttled disk overlaps with whatever a step
does besides. This one does not: a request of `n` bytes takes a latency and n bytes at a rate, and the next one waits.

usage: slow.py MOUNT MIB CONTROL

A file system with one file, `disk`, in memory. CONTROL holds three doubles: MB/s of reads, of writes (0: at once), and
milliseconds of latency; they may be changed at any time.
"""

import ctypes
import errno
import mmap
import os
import stat
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CONTROL = struct.Struct("<ddd")
HEADER = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")

# Of the kernel's protocol, version 7.31: what a program that opens, reads and writes one file asks.
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, DESTROY = (
    1, 2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 26, 27, 28, 29, 38)
ROOT, FILE = 1, 2
DIRECT_IO, ASYNC_READ, BIG_WRITES, MAX_PAGES = 1, 1, 1 << 5, 1 << 22
MOST = 1 << 20


class Disk:
    def __init__(self, mib, control):
        self.data = mmap.mmap(-1, mib << 20)
        with open(control, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), CONTROL.size)
        self.free = 0.0

    def wait(self, size, write):
        """Until a request that came now is served."""
        rates = CONTROL.unpack(self.control)
        rate, latency = rates[1 if write else 0], rates[2]
        if not rate and not latency:
            return
        service = latency / 1000 + (size / (rate * 1e6) if rate else 0)
        self.free = max(time.monotonic(), self.free) + service
        time.sleep(max(0.0, self.free - time.monotonic()))

    def attributes(self, node):
        mode, size = (stat.S_IFDIR | 0o755, 0) if node == ROOT else (stat.S_IFREG | 0o600, len(self.data))
        return ATTRIBUTES.pack(node, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, code, node, body):
        """The answer's body; a number is an error; `None` is no answer."""
        if code == INIT:
            major, minor, ahead, _ = struct.unpack_from("<IIII", body)
            flags = ASYNC_READ | BIG_WRITES | MAX_PAGES
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, flags, 16, 12, MOST, 1, MOST >> 12, 0, 0)
        if code == LOOKUP:
            if node != ROOT or body != b"disk\0":
                return errno.ENOENT
            return struct.pack("<QQQQII", FILE, 0, 3600, 3600, 0, 0) + self.attributes(FILE)
        if code in (GETATTR, SETATTR):
            return struct.pack("<QII", 3600, 0, 0) + self.attributes(node)
        if code in (OPEN, OPENDIR):
            return struct.pack("<QII", 1, DIRECT_IO if code == OPEN else 0, 0)
        if code == READ:
            _, place, size = struct.unpack_from("<QQI", body)
            self.wait(size, False)
            return self.data[place:place + size]
        if code == WRITE:
            _, place, size = struct.unpack_from("<QQI", body)
            self.wait(size, True)
            self.data[place:place + size] = body[40:40 + size]
            return struct.pack("<II", size, 0)
        if code == STATFS:
            return struct.pack("<QQQQQIIII24x", 0, 0, 0, 1, 0, 4096, 255, 4096, 0)
        if code in (RELEASE, FSYNC, FLUSH, READDIR, RELEASEDIR):
            return b""
        return None if code == FORGET else errno.ENOSYS


def main():
    mount, mib, control = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    handle = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0,max_read={MOST}".encode()
    if LIBC.mount(b"slow", mount.encode(), b"fuse.slow", 0, options):
        raise OSError(ctypes.get_errno(), f"mounting a file system on {mount}")
    disk = Disk(mib, control)
    while True:
        try:
            request = os.read(handle, MOST + 4096)
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.ENOENT):
                return
            raise
        _, code, unique, node, *_ = HEADER.unpack_from(request)
        body = disk.answer(code, node, request[HEADER.size:])
        if body is None:
            continue
        failed = -body if isinstance(body, int) else 0
        body = b"" if failed else body
        try:
            os.write(handle, ANSWER.pack(ANSWER.size + len(body), failed, unique) + body)
        except FileNotFoundError:
            # Nobody waits for it any more.
            continue


if __name__ == "__main__":
    main()
