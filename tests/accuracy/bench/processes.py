"""Processes that end with this one, whatever happens to it."""

import ctypes
import os
import signal
import subprocess
import time

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


def stop(process, first=signal.SIGTERM, seconds=5.0):
    """Ends a program and what it started: by asking, then by force."""
    end = time.monotonic() + seconds
    if signalled(process, first):
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        # What it started may clean up behind it.
        end = time.monotonic() + 0.5
        while signalled(process, 0) and time.monotonic() < end:
            time.sleep(0.02)
    signalled(process, signal.SIGKILL)
    process.wait()


def signalled(process, number):
    """Signals a program's session; whether any of it is there."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True
