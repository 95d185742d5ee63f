"""SQLite exports of Nsight Systems."""

import sqlite3
from pathlib import Path

import cuda
from problem import Problem
from sched_text import Event

WAYS = {1: "bytes_to_device", 2: "bytes_to_host"}
WORKS = {"KERNEL": "kernel", "MEMCPY": "copy", "MEMSET": "memset", "GRAPH_TRACE": "kernel"}


def read(path, notes):
    """A trace; times in nanoseconds of the wall clock if the file says when its session began."""
    try:
        with sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True) as file:
            file.row_factory = sqlite3.Row
            return load(file, path, notes)
    except (sqlite3.DatabaseError, IndexError) as error:
        raise Problem(f"read the CUDA trace {path}: {error}; make it anew with `nsys export --type sqlite REPORT`") from None


def load(file, path, notes):
    tables = {row[0] for row in file.execute("select name from sqlite_master where type = 'table'")}
    lacks = []
    if "CUPTI_ACTIVITY_KIND_RUNTIME" not in tables:
        lacks.append("no CUDA calls (CUPTI_ACTIVITY_KIND_RUNTIME)")
    # A graph is traced as a whole, without its kernels, unless that is asked for by node.
    if not tables & {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}:
        lacks.append("neither kernels (CUPTI_ACTIVITY_KIND_KERNEL) nor graphs (CUPTI_ACTIVITY_KIND_GRAPH_TRACE)")
    if lacks:
        raise Problem(f"read the CUDA trace {path}: it holds {' and '.join(lacks)}; profile with "
                      "`nsys profile -t cuda --cuda-graph-trace=node`")
    base = session_start(file, tables)
    calls, names = [], []
    query = ("select c.start, c.end, c.globalTid, c.correlationId, s.value as name from CUPTI_ACTIVITY_KIND_RUNTIME c "
             "left join StringIds s on s.id = c.nameId")
    for row in file.execute(query):
        kind = cuda.kind_of(str(row["name"] or ""))
        if kind is None:
            notes.count("CUDA call whose name says nothing, left out")
            continue
        try:
            tgid, tid = ids(row["globalTid"])
            calls.append(cuda.Call(base + int(row["start"]), base + int(row["end"]), tid, tgid, kind, row["correlationId"]))
            names.append(row["name"])
        except (TypeError, ValueError):
            notes.count(f"CUDA call in {path} without the fields that it should have")
    works = []
    for table, kind in WORKS.items():
        if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:
            continue
        for row in file.execute(f"select * from CUPTI_ACTIVITY_KIND_{table}"):
            columns = row.keys()
            copy = kind == "copy"
            try:
                works.append(cuda.Work(
                    base + int(row["start"]), base + int(row["end"]), ids(row["globalPid"])[0], cuda.ordinal(row["deviceId"]),
                    kind, row["correlationId"], int(row["bytes"] or 0) if copy and "bytes" in columns else 0,
                    WAYS.get(row["copyKind"], "bytes_other") if copy and "copyKind" in columns else "bytes_other"))
            except (TypeError, ValueError):
                notes.count(f"row of {table} in {path} without the fields that it should have")
    if not calls or not works:
        raise Problem(f"read the CUDA trace {path}: it has {len(calls)} calls and {len(works)} pieces of work")
    return cuda.connect(
        cuda.Trace(path, cuda.outermost(calls, names, notes), works, models(file, tables), base > 0,
                   switches(file, tables, base, notes)), notes)


def ids(serial):
    """Process and thread of a serialised identifier."""
    return serial >> 24 & 0xFFFFFF, serial & 0xFFFFFF


def session_start(file, tables):
    """When the session began, in nanoseconds since 1970; 0 if that is not said."""
    if "TARGET_INFO_SESSION_START_TIME" not in tables:
        return 0
    row = file.execute("select * from TARGET_INFO_SESSION_START_TIME").fetchone()
    return int(row["utcEpochNs"] or 0) if row is not None and "utcEpochNs" in row.keys() else 0


def models(file, tables):
    if "TARGET_INFO_GPU" not in tables:
        return {}
    rows = file.execute("select id, name from TARGET_INFO_GPU")
    return {row["id"]: row["name"] for row in rows if isinstance(row["name"], str)}


def switches(file, tables, base, notes):
    """The scheduler events of the same file; none if it has none. They do not say in which state a thread left."""
    if "SCHED_EVENTS" not in tables:
        return None
    events = []
    for row in file.execute("select start, cpu, isSchedIn, globalTid from SCHED_EVENTS order by start"):
        try:
            (tgid, tid), time = ids(row["globalTid"]), base + int(row["start"])
        except (TypeError, ValueError):
            notes.count("row of SCHED_EVENTS without the fields that it should have")
            continue
        # Another thread's place is taken by the idle one, which nobody follows.
        args = (0, "R", tid) if row["isSchedIn"] else (tid, "S", 0)
        events.append(Event(time, row["cpu"], tid, tgid, None, "switch", args))
    return events
