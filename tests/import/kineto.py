"""Chrome traces of the PyTorch profiler (Kineto)."""

import gzip
import json
import zlib
from decimal import Decimal

import cuda
from problem import Problem

# With the names that they had before PyTorch 1.13.
CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
WORKS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset", "Kernel": "kernel", "Memcpy": "copy", "Memset": "memset"}
WAYS = {"HtoD": "bytes_to_device", "DtoH": "bytes_to_host"}


def read(path, notes):
    """A trace; times in nanoseconds of the wall clock where the file says which instant its times count from."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as file:
            # Microseconds since 1970 with a fraction are more digits than a float holds.
            trace = json.load(file, parse_float=Decimal)
    except (ValueError, EOFError, RecursionError, gzip.BadGzipFile, zlib.error) as error:
        raise Problem(
            f"read the CUDA trace {path}: {error}; the profiler writes it in one go at its end, so export it again "
            "and copy the whole file"
        ) from None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise Problem(f"read the CUDA trace {path}: it has no traceEvents; give what export_chrome_trace wrote")
    head = trace if isinstance(trace, dict) else {}
    try:
        base = int(head.get("baseTimeNanoseconds") or 0)
    except (TypeError, ValueError, ArithmeticError):
        raise Problem(
            f"read the CUDA trace {path}: its baseTimeNanoseconds is no number; give what export_chrome_trace wrote"
        ) from None

    events = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    calls, names, works, process = [], [], [], None
    for event in events:
        category, arguments = event.get("cat"), event.get("args") or {}
        try:
            start = base + int(Decimal(event["ts"]) * 1000)
            end = start + int(Decimal(event.get("dur", 0)) * 1000)
            correlation = int(arguments.get("correlation", 0))
            if category in CALLS:
                kind = cuda.kind_of(event["name"])
                if kind is None:
                    notes.count(f"call of category {category} that is none of CUDA's, left out")
                    continue
                process = int(event["pid"])
                calls.append(cuda.Call(start, end, int(event["tid"]), process, kind, correlation))
                names.append(event["name"])
            elif category in WORKS:
                way = next((way for mark, way in WAYS.items() if mark in event["name"]), "bytes_other")
                works.append(cuda.Work(start, end, 0, cuda.ordinal(arguments["device"]), WORKS[category], correlation,
                                       int(arguments.get("bytes", 0)), way))
        except (KeyError, AttributeError, TypeError, ValueError, ArithmeticError):
            notes.count(f"event of category {category} in {path} without the fields that it should have")
    if not calls or not works:
        raise Problem(
            f"read the CUDA trace {path}: it has {len(calls)} calls and {len(works)} pieces of work; profile with both "
            "ProfilerActivity.CPU and ProfilerActivity.CUDA"
        )
    for work in works:
        work.tgid = process
    wall = min(call.start for call in calls) > 10**18
    return cuda.connect(cuda.Trace(path, cuda.outermost(calls, names, notes), works, models(head), wall), notes)


def models(head):
    """Names of devices, as far as the trace has them."""
    devices = head.get("deviceProperties") or head.get("computeProperties") or []
    devices = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    return {device["id"]: device["name"] for device in devices
            if isinstance(device.get("id"), int) and isinstance(device.get("name"), str)}
