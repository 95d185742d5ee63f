"""Where the training loop's batches come from: the ways that are in use."""

import multiprocessing
import queue
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from actors import Actors, Awaited
from stages import BATCH, Chain

HERE = Path(__file__).resolve().parent


class Inline:
    """The loop makes them itself."""

    def __init__(self, stages=()):
        self.next = Chain(list(stages))


class Prefetch:
    """A thread makes them ahead of the loop."""

    def __init__(self, stages=(), depth=2):
        self.ready = queue.Queue(depth)
        threading.Thread(target=self._run, args=(Chain(list(stages)),), daemon=True).start()

    def _run(self, chain):
        while True:
            self.ready.put(chain())

    def next(self):
        return self.ready.get()


class Beside:
    """The loop makes them itself, and threads of the same interpreter do work of their own."""

    def __init__(self, stages=(), beside=(), threads=1):
        self.next = Chain(list(stages))
        for _ in range(threads):
            threading.Thread(target=self._run, args=(Chain(list(beside)),), daemon=True).start()

    @staticmethod
    def _run(chain):
        while True:
            chain()


class Convoy:
    """The loop needs a lock for each batch that others hold while they work: threads, or processes."""

    def __init__(self, stages=(), holding=(), pause=(), holders=1, processes=False):
        self.chain = Chain(list(stages))
        of = multiprocessing.get_context("fork") if processes else threading
        start = of.Process if processes else threading.Thread
        self.lock = of.Lock()
        for _ in range(holders):
            work = Chain(list(holding)), Chain(list(pause))
            start(target=self._hold, args=(self.lock, *work), daemon=True).start()

    @staticmethod
    def _hold(lock, work, pause):
        while True:
            with lock:
                work()
            pause()

    def next(self):
        with self.lock:
            return self.chain()


def _work(indexes, results, stages):
    chain = Chain(stages)
    while True:
        index = indexes.get()
        if index is None:
            return
        results.put((index, chain()))


class Loader:
    """Worker processes as a data loader has them: an index queue each, one queue of results, batches in order."""

    def __init__(self, stages=(), workers=1, start="fork", prefetch=2, pin=False, epoch=0):
        self.context = multiprocessing.get_context(start)
        self.stages, self.workers, self.prefetch, self.epoch = list(stages), workers, prefetch, epoch
        self.pin = pin
        self._begin()

    def _begin(self):
        self.results = self.context.Queue()
        self.queues = [self.context.Queue() for _ in range(self.workers)]
        self.processes = []
        for indexes in self.queues:
            process = self.context.Process(target=_work, args=(indexes, self.results, self.stages), daemon=True)
            process.start()
            self.processes.append(process)
        self.sent = self.taken = 0
        self.early = {}
        for _ in range(self.prefetch * self.workers):
            self._ask()
        self.data = self.results
        if self.pin:
            self.data = queue.Queue()
            threading.Thread(target=self._pin, args=(self.results, self.data), daemon=True).start()

    def _ask(self):
        if not self.epoch or self.sent < self.epoch:
            self.queues[self.sent % self.workers].put(self.sent)
            self.sent += 1

    @staticmethod
    def _pin(results, data):
        while True:
            index, batch = results.get()
            data.put((index, bytearray(batch)))

    def next(self):
        if self.epoch and self.taken == self.epoch:
            for indexes in self.queues:
                indexes.put(None)
            for process in self.processes:
                process.join()
            self._begin()
        while self.taken not in self.early:
            index, batch = self.data.get()
            self.early[index] = batch
        batch = self.early.pop(self.taken)
        self.taken += 1
        self._ask()
        return batch


class Torch:
    """The real PyTorch DataLoader."""

    def __init__(self, stages=(), workers=0, start=None, prefetch=2, persistent=False, epoch=0, pin=False):
        from torch_data import loader

        self.make = loader(list(stages), workers, start, prefetch, persistent, epoch, pin)
        self.batches = iter(self.make)

    def next(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.make)
            return next(self.batches)


class Pool:
    """Threads in two stages with bounded queues between them, as dataset pipelines have: readers, then mappers."""

    def __init__(self, read=(), map=(), readers=1, mappers=2, depth=2):
        raw, self.ready = queue.Queue(depth), queue.Queue(depth)
        for _ in range(readers):
            threading.Thread(target=self._read, args=(Chain(list(read)), raw), daemon=True).start()
        for _ in range(mappers):
            threading.Thread(target=self._map, args=(Chain(list(map)), raw, self.ready), daemon=True).start()

    @staticmethod
    def _read(chain, raw):
        while True:
            raw.put(chain())

    @staticmethod
    def _map(chain, raw, ready):
        while True:
            ready.put(chain(raw.get()))

    def next(self):
        return self.ready.get()


def _link(chain, source, target):
    chain = Chain(chain)
    while True:
        target.put(chain(source.get() if source else BATCH))


class Links:
    """Processes in a row with queues between them: each does one part, the last hands over to the loop."""

    def __init__(self, links=(), depth=1, start="fork"):
        context = multiprocessing.get_context(start)
        self.ready = None
        for chain in links:
            target = context.Queue(depth)
            context.Process(target=_link, args=(list(chain), self.ready, target), daemon=True).start()
            self.ready = target

    def next(self):
        return self.ready.get()


class Pipe:
    """A helper program asked over its standard input, as tokenizers are: the loop waits for each answer."""

    def __init__(self, stages=()):
        import json

        self.helper = subprocess.Popen([sys.executable, HERE / "helper.py", json.dumps(list(stages))],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def next(self):
        self.helper.stdin.write(struct.pack("<I", len(BATCH)))
        left = struct.unpack("<I", self.helper.stdout.read(4))[0]
        while left:
            left -= len(self.helper.stdout.read(left))
        return BATCH


class Requests:
    """Requests of a client, one after the other, over a connection that it made. Each answers the one before."""

    def __init__(self, port, stages=()):
        self.chain, self.asked = Chain(list(stages)), False
        listener = socket.create_server(("127.0.0.1", port))
        self.connection, _ = listener.accept()

    def next(self):
        if self.asked:
            self.connection.sendall(b"done")
        self.asked = True
        if not self.connection.recv(4, socket.MSG_WAITALL):
            raise ConnectionError("the client is gone")
        return self.chain()


SOURCES = {
    "inline": Inline,
    "prefetch": Prefetch,
    "beside": Beside,
    "convoy": Convoy,
    "loader": Loader,
    "torch": Torch,
    "pool": Pool,
    "links": Links,
    "pipe": Pipe,
    "actors": Actors,
    "awaited": Awaited,
    "requests": Requests,
}
