#!/usr/bin/env python3
"""The accuracy study: stall causes against counterfactual truth, on the real kernel and a simulated device.

usage: accuracy.py [--seed N] [--repeats N] [--quick] [--leaders] [--only NAME,NAME] [--out FILE] [--seconds S] [--keep DIR] [--torch DIR] [--resume]
       accuracy.py --list
       accuracy.py --document FILE --out RESULT [--partial]     puts the tables of a result into a document; of a part only if told
"""

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bench import judge, machine, table  # noqa: E402
from bench.lab import Lab  # noqa: E402
from bench.scenario import ALL, Case, alone, trainer  # noqa: E402

for module in sorted((HERE / "scenarios").glob("[a-z]*.py")):
    importlib.import_module(f"scenarios.{module.stem}")

# What a run says with its exit status that could not begin for what the machine lacks.
SKIPPED = 3
# Where this is set, that is a failure.
NO_SKIP = "WARPMETER_NO_SKIP"


def framed(*lines):
    """Lines in large letters: what nobody should overlook among the output of other checks."""
    width = max(map(len, lines))
    edge = "#" * (width + 6)
    return "\n".join(["", edge, *(f"## {line:{width}} ##" for line in lines), edge])


# What is not committed says so.
DIRTY = "-dirty"
# Where git does not say which commit it is.
UNKNOWN = "unknown"
# Nothing was run.
REFUSED = 2
# Everything but documents, in git's words.
JUDGED = ["--", ":/", ":(top,exclude)docs", ":(top,exclude)*.md"]


def revision():
    """The commit that is judged: the last one that changed more than documents."""
    git = lambda *words: subprocess.run(["git", *words, *JUDGED], capture_output=True, text=True, cwd=HERE).stdout.strip()
    dirty = DIRTY if git("status", "--porcelain") else ""
    return (git("log", "-1", "--format=%h") or UNKNOWN) + dirty


# What the parts of a study have in common.
SAME = ("seed", "repeats", "seconds", "revision", "kernel", "processors", "scenarios")


class NotTheSame(Exception):
    """A study that is there is not the one that would go on."""


def begin(path, head, resume):
    """The result's file, to be written on, and which runs it has: none, unless a study goes on in it."""
    done = set()
    lines = [head]
    if resume and Path(path).exists():
        old, lines = table.read(path)
        differs = [name for name in SAME if old.get(name) != head[name]]
        nameless = head["revision"].endswith(DIRTY) or head["revision"] == UNKNOWN
        if nameless and "revision" not in differs:
            # Two states of a tree that is being changed, or that git does not know, have one name.
            differs.append("revision")
        if differs:
            raise NotTheSame(f"{path} is of another study, by {', '.join(differs)}: give --out another name, or leave --resume out")
        # A run that could not be measured is tried again, and its line goes.
        lines = [run for run in lines if "error" not in run]
        done = {(run["scenario"], run["repeat"]) for run in lines}
        parts = [*old.get("parts", [{name: old[name] for name in ("began", "noise")}]), {name: head[name] for name in ("began", "noise")}]
        bands = [part["noise"]["band_points"] for part in parts]
        lines = [{**old, "parts": parts, "noise": parts[bands.index(max(bands))]["noise"]}, *lines]
    lines[0] = {"study": lines[0]}
    # As a whole or not at all: what is there took hours.
    new = Path(f"{path}.new")
    new.write_text("".join(json.dumps(line) + "\n" for line in lines))
    new.replace(path)
    return open(path, "a"), done


def noise(lab, runs):
    """What the machine adds to a step that nothing holds up: spread of its time over runs, in points."""
    config = {**trainer(lab, kernels=8, kernel_us=2500), "steps": 100}
    case = Case({f"run{number}": alone(config) for number in range(runs)})
    ran, _ = lab.run("noise", case)
    times = sorted(judge.step_ns(pods["main"]["runs"][0]) for pods in ran.values())
    middle = times[len(times) // 2]
    return {"step_ms": [round(ns / 1e6, 3) for ns in times], "band_points": round(100 * (times[-1] - times[0]) / middle, 2)}


# Where only the leading cause counts, a run that names a wrong one is repeated as it was: a machine that others use may stop a
# workload for a while. A rule that is wrong is so each time.
ATTEMPTS = 3


def study(lab, names, args, out, done=()):
    """Runs everything in order but what is `done`; every run is a line of the result, failed ones too. How many verdicts held,
    and not.
    """
    held = failed = 0
    for repeat in range(args.repeats):
        for name in names:
            if (name, repeat) in done:
                continue
            attempts = range(ATTEMPTS if args.leaders else 1)
            good = any(attempt(lab, name, repeat, number, args, out) for number in attempts)
            held, failed = held + good, failed + (not good)
    return held, failed


def attempt(lab, name, repeat, number, args, out):
    """One run: a line of the result. Whether it is right. Each attempt at a repeat has the same parameters."""
    lab.begin(name, repeat)
    record = {"scenario": name, "repeat": repeat, "attempt": number, "load": round(os.getloadavg()[0], 2)}
    began = time.monotonic()
    try:
        case = ALL[name].make(lab)
        record["parameters"] = case.parameters
        ran, record["warnings"] = lab.run(name, case)
        record["verdicts"] = lab.judge(case, ran)
        record["ran"] = ran
        kind = "leader_faults" if args.leaders else "faults"
        faults = [f"{verdict['pod']}: {fault}" for verdict in record["verdicts"] for fault in verdict.get(kind, ())]
    except Exception as error:
        if args.keep:
            traceback.print_exc()
        record["error"] = f"{type(error).__name__}: {error}"
        faults = [record["error"]]
    record["took_s"] = round(time.monotonic() - began, 1)
    out.write(json.dumps(record) + "\n")
    out.flush()
    show(record, faults)
    return not faults


def show(record, faults):
    """A run in words."""
    again = f", attempt {record['attempt'] + 1}" if record["attempt"] else ""
    print(f"{'wrong' if faults else 'right'}  {record['scenario']} #{record['repeat']}{again} ({record['took_s']} s)")
    for verdict in record.get("verdicts", []):
        rows = ", ".join(f"{row['cause']} {row['truth']:.1f}/{row['measured']:.1f}" for row in verdict["causes"])
        print(f"       {verdict['pod']}: {rows}")
    for fault in faults:
        print(f"       ! {fault}")
    sys.stdout.flush()


def document(path, result, partial):
    """Puts the tables of a result into a document; those of a part of a study only if that is wanted."""
    head, runs = table.read(result)
    done, planned = table.progress(head, runs)
    if done < planned and not partial:
        print(f"{path} stays as it is: {result} has {done} of {planned} runs (--partial takes it all the same)", file=sys.stderr)
        return 1
    table.put(path, table.table(head, runs, ALL, judge.LIMITS))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--leaders", action="store_true", help="only a wrong leading cause or a failed run is a fault")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="accuracy.jsonl")
    parser.add_argument("--seconds", type=float, default=7.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--torch", type=Path)
    parser.add_argument("--resume", action="store_true", help="goes on with the study in --out, if that is the same one")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--document", type=Path)
    parser.add_argument("--partial", action="store_true", help="with --document: a result that lacks runs, too")
    args = parser.parse_args()
    if args.document:
        return document(args.document, args.out, args.partial)
    chosen = [name for name in args.only.split(",") if name]
    unknown = [name for name in chosen if name not in ALL]
    if args.resume and args.leaders:
        parser.error("--resume is of a study in which each run counts: with --leaders runs are repeated")
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    with_torch = bool(args.torch)
    without = [name for name in chosen if ALL[name].torch and not with_torch and not args.list]
    if without:
        parser.error(f"without --torch DIR (torch.sh makes it) these cannot be run: {', '.join(without)}")
    names = [one.name for one in ALL.values() if (one.name in chosen if chosen else one.quick or not args.quick)]
    if args.list:
        for name in names:
            print(f"{name}\t{ALL[name].title}" + ("\t(needs PyTorch: --torch)" if ALL[name].torch else ""))
        return 0
    names = [name for name in names if with_torch or not ALL[name].torch]
    lacks = machine.lacks()
    if lacks:
        needs = f"the study needs {', '.join(lacks)}"
        if os.environ.get(NO_SKIP):
            print(f"failed: {needs}", file=sys.stderr)
            return REFUSED
        print(framed("SKIPPED: causes were NOT compared with truth", needs, f"{NO_SKIP}=1 makes this a failure"), file=sys.stderr)
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # In memory: what others do with this machine's disk is not measured.
    memory = Path("/dev/shm")
    temporary = memory if memory.is_mount() else Path(tempfile.gettempdir())
    machine.sweep(temporary)
    scratch = temporary / f"{machine.PREFIX}-{os.getpid()}"
    scratch.mkdir()
    try:
        lab = Lab(scratch, args.seed, args.seconds, args.keep)
        if args.torch:
            lab.torch_env = dict(line.split("=", 1) for line in (args.torch / "env").read_text().split())
        try:
            head = {"seed": args.seed, "repeats": args.repeats, "seconds": args.seconds, "revision": revision(),
                    "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
                    "kernel": ".".join(platform.release().split(".")[:2]), "processors": os.cpu_count(), "scenarios": names,
                    "noise": noise(lab, 2 if args.quick else judge.LIMITS["noise"]["baseline_runs"])}
            print(f"noise band: {head['noise']['band_points']} points")
            try:
                out, done = begin(args.out, head, args.resume)
            except NotTheSame as why:
                print(why, file=sys.stderr)
                return REFUSED
            with out:
                held, failed = study(lab, names, args, out, done)
        finally:
            lab.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if done:
        # Of all its parts, not of this one alone.
        _, runs = table.read(args.out)
        held = table.held(runs)
        failed = len(runs) - held
    print(f"{held} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
