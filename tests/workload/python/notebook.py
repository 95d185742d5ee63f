#!/usr/bin/env python3
"""An interactive session: a context, bursts of kernels now and then, long silence between them.

usage: notebook.py [--seconds S] [--think S] [--device N] [--kernel-us US]
"""

import argparse
import signal
import sys
import time

from cuda import Driver


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--think", type=float, default=10, help="silence between two cells")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--kernel-us", type=float, default=2000)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    driver = Driver(args.device, blocking=True)
    driver.allocate(1 << 30)
    kernel = driver.kernel(f"us={args.kernel_us},sm=60,occ=40,dram=50")
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for _ in range(50):
            driver.launch(kernel)
        driver.synchronize()
        time.sleep(min(args.think, max(0, end - time.monotonic())))


if __name__ == "__main__":
    main()
