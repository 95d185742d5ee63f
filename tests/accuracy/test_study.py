#!/usr/bin/env python3
"""The study's ways, without running any: what a retry is, and what a machine that lacks something gives."""

import contextlib
import io
import json
import os
import unittest
from types import SimpleNamespace
from unittest import mock

import accuracy
from bench import machine
from bench.scenario import Case, Scenario


class Lab:
    """Draws parameters and fails to run what has them."""

    def begin(self, name, repeat):
        self.drawn = (name, repeat)

    def run(self, name, case):
        raise RuntimeError("no account")


def lines(leaders):
    """The lines of a study of two repeats that fails throughout."""
    out, args = io.StringIO(), SimpleNamespace(repeats=2, leaders=leaders, keep=None)
    case = lambda lab: Case({}, parameters={"drawn": lab.drawn})
    with mock.patch.dict(accuracy.ALL, {"one": Scenario("one", "", case)}), contextlib.redirect_stdout(io.StringIO()):
        counts = accuracy.study(Lab(), ["one"], args, out)
    return counts, [json.loads(line) for line in out.getvalue().splitlines()]


def skipped(**environment):
    """What the study answers where something is lacking."""
    said = io.StringIO()
    with mock.patch.object(machine, "lacks", return_value=["FUSE"]), mock.patch.dict(os.environ, environment), \
            mock.patch("sys.argv", ["accuracy.py"]), contextlib.redirect_stderr(said):
        return accuracy.main(), said.getvalue()


class Study(unittest.TestCase):
    def test_a_retry_has_the_parameters_of_the_run_that_it_repeats(self):
        counts, runs = lines(leaders=True)
        self.assertEqual(counts, (0, 2))
        self.assertEqual([run["attempt"] for run in runs], [0, 1, 2, 0, 1, 2])
        for run in runs:
            self.assertEqual(run["parameters"]["drawn"], ["one", run["repeat"]])

    def test_where_points_count_nothing_is_retried(self):
        _, runs = lines(leaders=False)
        self.assertEqual([(run["repeat"], run["attempt"]) for run in runs], [(0, 0), (1, 0)])

    def test_a_skip_is_told_from_a_study_that_passed(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(accuracy.NO_SKIP, None)
            self.assertEqual(skipped(), (accuracy.SKIPPED, "skipped: the study needs FUSE\n"))

    def test_a_skip_is_a_failure_where_nothing_may_be_skipped(self):
        self.assertEqual(skipped(WARPMETER_NO_SKIP="1"), (1, "failed: the study needs FUSE\n"))


if __name__ == "__main__":
    unittest.main()
