"""What makes a batch: each stage is a function of the bytes so far. Work is counted in rounds or bytes, never in time, so
that the same work takes longer when something is in its way.
"""

import hashlib
import mmap
import os
import select
import socket
import struct
import subprocess
import time

BLOCK = bytes(16 << 10)
BATCH = bytes(64 << 10)
REQUEST = struct.Struct("<II")


def hash_rounds(rounds):
    """Computes outside the interpreter's lock."""
    for _ in range(rounds):
        hashlib.sha256(BLOCK).digest()


def python_rounds(rounds):
    """Computes in the interpreter."""
    total = 0
    for _ in range(rounds):
        for number in range(100):
            total += number * number
    return total


def made(rounds, work):
    def stage(data):
        work(rounds)
        return data

    return stage


def warm(file):
    """Brings a file into memory."""
    with open(file, "rb", buffering=0) as whole:
        while whole.read(1 << 20):
            pass


def direct(file, kib):
    """Reads past the page cache, on and on through the file."""
    handle = os.open(file, os.O_RDONLY | os.O_DIRECT)
    size, step = os.fstat(handle).st_size, kib << 10
    buffer = mmap.mmap(-1, step)
    place = 0

    def stage(_):
        nonlocal place
        if place + step > size:
            place = 0
        os.preadv(handle, [buffer], place)
        place += step
        return BATCH

    return stage


def cold(file, kib):
    """Reads through the page cache what is not in it, in calls of 256 KiB."""
    handle = os.open(file, os.O_RDONLY)
    size, step = os.fstat(handle).st_size, kib << 10
    place = 0

    def stage(_):
        nonlocal place
        if place + step > size:
            place = 0
        end = place + step
        while place < end:
            place += len(os.pread(handle, min(256 << 10, end - place), place))
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return BATCH

    return stage


def again(file, kib):
    """Reads through the page cache, on and on through the file, and lets it keep what it can: also of the whole file, which is
    read once before the first step. What is in the cache already counts against other limits, and is dropped.
    """
    handle = os.open(file, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    warm(file)
    size, step = os.fstat(handle).st_size, kib << 10
    place = 0

    def stage(_):
        nonlocal place
        if place + step > size:
            place = 0
        os.pread(handle, step, place)
        place += step
        return BATCH

    return stage


def mapped(file, kib, keep=False):
    """Touches a mapped file's pages, which are not in memory unless it may keep them."""
    handle = os.open(file, os.O_RDONLY)
    size, step = os.fstat(handle).st_size, kib << 10
    place = 0
    if keep:
        warm(file)

    def stage(_):
        nonlocal place
        if place + step > size:
            place = 0
        with mmap.mmap(handle, step, prot=mmap.PROT_READ, offset=place) as view:
            view.madvise(mmap.MADV_RANDOM)
            sum(view[at] for at in range(0, step, 4096))
        place += step
        if not keep:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return BATCH

    return stage


def files(directory, count, keep=False):
    """Opens and reads `count` small files of a directory, which are not in memory unless it may keep them."""
    names = sorted(os.listdir(directory))
    place = 0
    if keep:
        for name in names:
            warm(os.path.join(directory, name))

    def stage(_):
        nonlocal place
        for _ in range(count):
            handle = os.open(os.path.join(directory, names[place % len(names)]), os.O_RDONLY)
            os.read(handle, 1 << 20)
            if not keep:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
            place += 1
        return BATCH

    return stage


def received(connection, left):
    """Receives some of what is left; gives what is left then."""
    got = connection.recv_into(left)
    if not got:
        raise ConnectionError("the server closed")
    return left[got:]


def fetch(address, kib, requests=1, delay_us=0, mark_kib=0):
    """Asks a server for data, one request after the other. With a mark it is woken once there is so much, as receivers of
    large messages are, and not for every packet.
    """
    connection = None
    buffer = bytearray(max(kib << 10, 1))

    def stage(_):
        nonlocal connection
        # At first use: a worker process has a connection of its own.
        if connection is None:
            connection = socket.create_connection(tuple(address), timeout=30)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(requests):
            connection.sendall(REQUEST.pack(len(buffer), delay_us))
            left = memoryview(buffer)
            while left:
                if mark_kib:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(len(left), mark_kib << 10))
                    # The mark holds for waiting, not for a receive that has taken a part already.
                    select.select([connection], [], [])
                left = received(connection, left)
        return BATCH

    return stage


def pushed(address, kib):
    """Receives what a server sends all the time over a connection that it makes. The buffer holds a quarter of a batch, so that
    little comes while nobody receives.
    """
    connection = None
    buffer = bytearray(kib << 10)

    def stage(_):
        nonlocal connection
        if connection is None:
            with socket.create_connection(tuple(address), timeout=30) as asking:
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kib << 8)
                listener.bind((asking.getsockname()[0], 0))
                listener.listen()
                asking.sendall(REQUEST.pack(0, listener.getsockname()[1]))
                connection, _ = listener.accept()
        left = memoryview(buffer)
        while left:
            left = received(connection, left)
        return BATCH

    return stage


def pieces(address, kib, requests, delay_us, rounds, keep=False):
    """Asks a server for pieces, one after the other, and works on each in the interpreter; or on what it kept of them."""
    ask = fetch(address, kib, 1, delay_us)

    def stage(data):
        for _ in range(requests):
            if not keep:
                data = ask(data)
            python_rounds(rounds)
        return data

    return stage


def grpc(address, kib, requests, delay_us):
    """Asks for features by gRPC, request by request; the answer is the last one."""
    import grpc

    channel = grpc.insecure_channel("{}:{}".format(*address))
    get = channel.unary_unary("/features.Features/Get")
    request = REQUEST.pack(kib << 10, delay_us)

    def stage(_):
        for _ in range(requests):
            answer = get(request, wait_for_ready=True)
        return answer

    return stage


def write(file, kib, every=1, direct=False):
    """Writes a checkpoint and waits until it is on the disk, once in `every` calls."""
    block = mmap.mmap(-1, 1 << 20)
    block.write(b"\7" * (1 << 20))
    calls = 0

    def stage(data):
        nonlocal calls
        calls += 1
        if calls % every:
            return data
        flags = os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if direct else os.O_TRUNC)
        handle = os.open(file, flags, 0o600)
        left = kib << 10
        while left > 0:
            left -= os.write(handle, memoryview(block)[: min(left, len(block))])
        os.fdatasync(handle)
        os.close(handle)
        return data

    return stage


def touch(mib, pages):
    """Touches pages of a large buffer, on and on through it."""
    buffer = mmap.mmap(-1, mib << 20)
    for at in range(0, mib << 20, 4096):
        buffer[at] = 1
    place = 0

    def stage(data):
        nonlocal place
        for _ in range(pages):
            buffer[place] = (buffer[place] + 1) & 0xFF
            place = (place + 4096) % (mib << 20)
        return data

    return stage


def sleep(ms):
    """Waits for a timer."""

    def stage(data):
        time.sleep(ms / 1000)
        return data

    return stage


def program(words):
    """Starts a program and waits until it has ended."""

    def stage(data):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return data

    return stage


MAKERS = {
    "hash": lambda rounds: made(rounds, hash_rounds),
    "python": lambda rounds: made(rounds, python_rounds),
    "direct": direct,
    "cold": cold,
    "again": again,
    "mapped": mapped,
    "files": files,
    "fetch": fetch,
    "pushed": pushed,
    "pieces": pieces,
    "grpc": grpc,
    "program": program,
    "write": write,
    "touch": touch,
    "sleep": sleep,
}


def make(stage):
    """A stage of its description."""
    words = dict(stage)
    return MAKERS[words.pop("do")](**words)


class Chain:
    """Stages one after the other. They are opened at the first call: in the process or thread that works."""

    def __init__(self, stages):
        self.stages, self.made = stages, None

    def __call__(self, data=BATCH):
        if self.made is None:
            self.made = [make(stage) for stage in self.stages]
        for stage in self.made:
            data = stage(data)
        return data
