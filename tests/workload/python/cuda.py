"""The few driver calls that the programs beside this file use, by ctypes."""

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_uint64, c_void_p


class Driver:
    """A device's primary context, current in the thread that makes this."""

    def __init__(self, device=0, blocking=False):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        if blocking:
            self._call("cuDevicePrimaryCtxSetFlags_v2", device, 4)
        self.context = c_uint64()
        self._call("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self._call("cuCtxSetCurrent", self.context)
        self.module = c_uint64()
        self._call("cuModuleLoadData", byref(self.module), c_char_p(b"\0" * 8))
        self.buffer = None

    def _call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise RuntimeError(f"{name} gave CUDA error {code}")

    def kernel(self, name):
        """A kernel of known behaviour, by its name."""
        function = c_uint64()
        self._call("cuModuleGetFunction", byref(function), self.module, c_char_p(name.encode()))
        return function

    def launch(self, kernel):
        """Launches into the legacy default stream."""
        self._call("cuLaunchKernel", kernel, 1, 1, 1, 256, 1, 1, 0, c_uint64(0), None, None)

    def synchronize(self):
        """Waits for the context."""
        self._call("cuCtxSynchronize")

    def allocate(self, size):
        """Device memory."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address

    def page_locked(self, size):
        """The host's memory, page-locked."""
        address = c_void_p()
        self._call("cuMemAllocHost_v2", byref(address), c_size_t(size))
        return address

    def upload(self, data):
        """Copies bytes to the device and waits."""
        if self.buffer is None:
            self.buffer = self.allocate(len(data))
        self._call("cuMemcpyHtoD_v2", self.buffer, c_char_p(data), c_size_t(len(data)))
