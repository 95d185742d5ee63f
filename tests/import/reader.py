#!/usr/bin/env python3
"""A training loop behind a process that reads from a disk, past the page cache, for most of the time, and decodes for the
rest: `reader.py SECONDS FILE`."""

import mmap
import multiprocessing
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workload/python"))
from cuda import Driver  # noqa: E402


def worker(queue, path):
    file, buffer = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 256 << 10)
    size, at = os.fstat(file).st_size, 0
    while True:
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            os.preadv(file, [buffer], at)
            at = (at + len(buffer)) % size
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass
        queue.put(b"batch")


def main(seconds, path):
    queue = multiprocessing.Queue(1)
    multiprocessing.Process(target=worker, args=(queue, path), daemon=True).start()
    driver = Driver()
    kernel, end = driver.kernel("us=5000,sm=90,occ=50,dram=30,tensor=40"), time.monotonic() + float(seconds)
    while time.monotonic() < end:
        queue.get()
        driver.launch(kernel)
        driver.launch(kernel)
        driver.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
