#!/usr/bin/env python3
"""One of four kernels of which it is known what they do, by PyTorch, until it is ended: `kernels.py NAME [DUTY]`.

idle     a context, and nothing
spin     one block of one thread, which waits for its clock: one warp on one SM
product  matrix products in 16 bits: all SMs, tensor pipes
copy     copies within the device's memory: its bandwidth

With a DUTY below 1, it works for that part of each 20 ms.
"""

import sys
import time

import torch


def main(name, duty):
    device = "cuda"
    torch.zeros(1, device=device)
    if name == "idle":
        step = None
    elif name == "spin":
        step = lambda: torch.cuda._sleep(2_000_000)
    elif name == "product":
        a = torch.randn(4096, 4096, device=device, dtype=torch.float16)
        b, c = torch.randn_like(a), torch.empty_like(a)
        step = lambda: torch.matmul(a, b, out=c)
    elif name == "copy":
        source = torch.empty(256 << 20, device=device, dtype=torch.uint8)
        target = torch.empty_like(source)
        step = lambda: target.copy_(source)
    else:
        sys.exit(__doc__)
    while True:
        if step is None:
            time.sleep(1)
            continue
        began = time.perf_counter()
        while time.perf_counter() - began < 0.02 * duty:
            step()
            torch.cuda.synchronize()
        if duty < 1:
            time.sleep(max(0.0, 0.02 - (time.perf_counter() - began)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
