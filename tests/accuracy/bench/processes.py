"""Processes that end with this one, whatever happens to it."""

import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def spawn(words, env=None, cgroups=(), processors=None, **more):
    """Starts a program in a session of its own, in these cgroups, on these processors only if any are given."""

    def before():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for procs in cgroups:
            # 0 is the writing process.
            with open(procs, "w") as file:
                file.write("0")
        if processors:
            os.sched_setaffinity(0, processors)

    more.setdefault("stdout", subprocess.DEVNULL)
    return subprocess.Popen([str(word) for word in words], env={**os.environ, **(env or {})}, preexec_fn=before,
                            stdin=subprocess.DEVNULL, start_new_session=True, **more)


def stop(process, first=signal.SIGTERM, seconds=5):
    """Ends a program and what it started: by asking, then by force."""
    try:
        os.killpg(process.pid, first)
    except ProcessLookupError:
        pass
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
