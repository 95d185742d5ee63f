"""One or several simulated devices, driven as a framework drives real ones."""

import ctypes
import sys
from ctypes import byref, c_size_t, c_uint64, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workload" / "python"))

from cuda import Driver  # noqa: E402
from stages import hash_rounds, make, python_rounds  # noqa: E402

HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)


class Device(Driver):
    """A device and how a step uses it.

    `mode` is how a step ends: `sync` waits for the context, `ahead` for the step `depth` before, `every` for the
    context once in `depth` steps, `item` in a blocking copy of four bytes to the host, `later` leaves it to `finish`.
    `gap_rounds` of Python are run after each launch, as frameworks do; `beside_rounds` of hashes once all are launched.
    `copy` is of `copy_kib`: `blocking` (pageable), `async` (pinned) or `held` (asynchronous, of pageable memory) before the
    kernels, or `last`, a blocking one after all of that.
    """

    def __init__(self, device=0, mode="sync", depth=2, kernels=8, kernel_us=1000, blocking=True, copy="", copy_kib=0,
                 host_rounds=0, gap_rounds=0, beside_rounds=0):
        super().__init__(device, blocking)
        self.mode, self.depth, self.kernels, self.copy, self.size = mode, depth, kernels, copy, copy_kib << 10
        self.function = self.kernel(f"us={kernel_us},sm=90,occ=50,dram=30,tensor=40")
        self.count, self.gap, self.beside = 0, gap_rounds, beside_rounds
        if mode == "ahead":
            self.events = [self._event() for _ in range(depth)]
        if copy:
            self.target = self.allocate(self.size)
            self.host = self.page_locked(self.size) if copy == "async" else ctypes.create_string_buffer(self.size)
        if mode == "item":
            self.item, self.value = self.allocate(4), ctypes.create_string_buffer(4)
        self.stream_work = None
        if host_rounds:
            work = make({"do": "hash", "rounds": host_rounds})
            self.stream_work = HOST_FUNCTION(lambda _: work(None))

    def _event(self):
        event = c_uint64()
        self._call("cuEventCreate", byref(event), 2)
        return event

    def current(self):
        """Makes this device's context the thread's."""
        self._call("cuCtxSetCurrent", self.context)

    def _copy(self):
        self._call("cuMemcpyHtoD_v2", self.target, self.host, c_size_t(self.size))

    def step(self):
        """Enqueues a step's work and waits as its mode says."""
        if self.copy in ("async", "held"):
            self._call("cuMemcpyHtoDAsync_v2", self.target, self.host, c_size_t(self.size), c_uint64(0))
        elif self.copy == "blocking":
            self._copy()
        for _ in range(self.kernels):
            self.launch(self.function)
            if self.gap:
                python_rounds(self.gap)
        if self.stream_work:
            self._call("cuLaunchHostFunc", c_uint64(0), self.stream_work, None)
            self.launch(self.function)
        if self.beside:
            hash_rounds(self.beside)
        if self.copy == "last":
            self._copy()
        if self.mode == "item":
            self._call("cuMemcpyDtoH_v2", self.value, self.item, c_size_t(4))
        elif self.mode == "sync" or (self.mode == "every" and self.count % self.depth == self.depth - 1):
            self.synchronize()
        elif self.mode == "ahead":
            event = self.events[self.count % self.depth]
            if self.count >= self.depth:
                self._call("cuEventSynchronize", event)
            self._call("cuEventRecord", event, c_uint64(0))
        self.count += 1

    def finish(self):
        """Waits for what a step of the mode `later` enqueued."""
        if self.mode == "later":
            self.current()
            self.synchronize()
