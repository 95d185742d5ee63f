#!/usr/bin/env python3
"""A training loop fed by worker processes that hold no context: steps wait for a pipe, workers compute.

usage: loader.py [--seconds S] [--workers N] [--decode-ms MS] [--device N] [--kernel-us US] [--kernels N]
"""

import argparse
import multiprocessing
import signal
import sys
import time

from cuda import Driver


def worker(queue, decode):
    """Makes batches: computes for `decode` seconds of processor time each."""
    batch = bytes(64 << 10)
    while True:
        end = time.process_time() + decode
        while time.process_time() < end:
            pass
        queue.put(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--decode-ms", type=float, default=30)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--kernel-us", type=float, default=500)
    parser.add_argument("--kernels", type=int, default=20)
    args = parser.parse_args()
    queue = multiprocessing.Queue(2)
    workers = [
        multiprocessing.Process(target=worker, args=(queue, args.decode_ms / 1000), daemon=True)
        for _ in range(args.workers)
    ]
    for process in workers:
        process.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    driver = Driver(args.device)
    kernel = driver.kernel(f"us={args.kernel_us},sm=90,occ=50,dram=30,tensor=40")
    steps, end = 0, time.monotonic() + args.seconds
    while time.monotonic() < end:
        batch = queue.get()
        driver.upload(batch)
        for _ in range(args.kernels):
            driver.launch(kernel)
        driver.synchronize()
        steps += 1
    print(f"{steps} steps, {steps * args.kernels * args.kernel_us / 1e6:.3f} s of kernels")


if __name__ == "__main__":
    main()
