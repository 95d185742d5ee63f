#!/usr/bin/env python3
"""The study's ways, without running any: what a retry is, and what a machine that lacks something gives."""

import contextlib
import io
import json
import os
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import accuracy
from bench import machine, table
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


def listed(*words):
    """The lines of the list of scenarios, by name."""
    said = io.StringIO()
    with mock.patch("sys.argv", ["accuracy.py", "--list", *words]), contextlib.redirect_stdout(said):
        code = accuracy.main()
    return code, {line.split("\t")[0]: line for line in said.getvalue().splitlines()}


class Study(unittest.TestCase):
    def test_every_scenario_is_listed_and_those_that_need_pytorch_say_so(self):
        for words in ((), ("--torch", "/nowhere")):
            code, lines = listed(*words)
            self.assertEqual((code, list(lines)), (0, list(accuracy.ALL)))
            for name, line in lines.items():
                self.assertEqual("needs PyTorch" in line, accuracy.ALL[name].torch, line)
        self.assertEqual(list(listed("--only", "torch_inline,timer")[1]), ["torch_inline", "timer"])

    def test_a_retry_has_the_parameters_of_the_run_that_it_repeats(self):
        counts, runs = lines(leaders=True)
        self.assertEqual(counts, (0, 2))
        self.assertEqual([run["attempt"] for run in runs], [0, 1, 2, 0, 1, 2])
        for run in runs:
            self.assertEqual(run["parameters"]["drawn"], ["one", run["repeat"]])

    def test_where_points_count_nothing_is_retried(self):
        _, runs = lines(leaders=False)
        self.assertEqual([(run["repeat"], run["attempt"]) for run in runs], [(0, 0), (1, 0)])

    def test_a_study_goes_on_with_what_it_lacks_and_only_as_the_same_one(self):
        head = {"seed": 1, "repeats": 2, "seconds": 4.0, "revision": "abc", "kernel": "6.18", "processors": 2,
                "scenarios": ["one"], "began": "then", "noise": {"band_points": 0.5}}
        later = {**head, "began": "now", "noise": {"band_points": 0.2}}
        with TemporaryDirectory() as directory:
            path = Path(directory) / "result"
            out, done = accuracy.begin(path, head, True)
            self.assertEqual(done, set())
            out.write('{"scenario": "one", "repeat": 0}\n{"scenario": "one", "repe')
            out.close()
            out, done = accuracy.begin(path, later, True)
            out.close()
            self.assertEqual(done, {("one", 0)})
            read, runs = table.read(path)
            self.assertEqual((read["began"], read["noise"]), ("then", head["noise"]))
            self.assertEqual([part["began"] for part in read["parts"]], ["then", "now"])
            self.assertEqual(runs, [{"scenario": "one", "repeat": 0}])
            for name in accuracy.SAME:
                with self.assertRaisesRegex(accuracy.NotTheSame, name):
                    accuracy.begin(path, {**later, name: "other"}, True)
            self.assertEqual(table.read(path)[1], runs, "what was refused has changed nothing")
            with open(path, "a") as out:
                out.write('{"scenario": "one", "repeat": 1, "error": "no account"}\n')
            accuracy.begin(path, later, True)[0].close()
            self.assertEqual(table.read(path)[1], runs, "what failed is tried again")
            for nameless in ("abc-dirty", "unknown"):
                accuracy.begin(path, {**later, "revision": nameless}, False)[0].close()
                with self.assertRaisesRegex(accuracy.NotTheSame, "revision"):
                    accuracy.begin(path, {**later, "revision": nameless}, True)
            accuracy.begin(path, later, False)[0].close()
            self.assertEqual(table.read(path), (later, []))
        out, args = io.StringIO(), SimpleNamespace(repeats=2, leaders=False, keep=None)
        with mock.patch.dict(accuracy.ALL, {"one": Scenario("one", "", lambda lab: Case({}))}), contextlib.redirect_stdout(io.StringIO()):
            accuracy.study(Lab(), ["one"], args, out, {("one", 0)})
        self.assertEqual([json.loads(line)["repeat"] for line in out.getvalue().splitlines()], [1])

    def test_a_skip_is_told_from_a_study_that_passed(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(accuracy.NO_SKIP, None)
            code, said = skipped()
        self.assertEqual(code, accuracy.SKIPPED)
        # In a frame, with what is lacking: it must not be overlooked among what passed.
        blank, edge, *lines, last = said.splitlines()
        self.assertEqual((blank, edge, {len(line) for line in lines}), ("", last, {len(edge)}))
        self.assertEqual((set(edge), lines[0][:11]), ({"#"}, "## SKIPPED:"))
        self.assertIn("the study needs FUSE", lines[1])

    def test_a_skip_is_a_failure_where_nothing_may_be_skipped(self):
        self.assertEqual(skipped(WARPMETER_NO_SKIP="1"), (accuracy.REFUSED, "failed: the study needs FUSE\n"))


if __name__ == "__main__":
    unittest.main()
