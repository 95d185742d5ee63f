#!/usr/bin/env python3
"""The tables, by results that are known."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import accuracy
from bench import judge, table
from bench.scenario import Scenario

SCENARIOS = {
    "decode": Scenario("decode", "decodes", None, phase="source"),
    "wait": Scenario("wait", "waits", None),
    "ahead": Scenario("ahead", "never waits", None, truth="log"),
    "absent": Scenario("absent", "is not there", None, truth="definition"),
    "refused": Scenario("refused", "must not be looked at", None, truth="definition"),
}
LOOPS = [{"start_ns": 0, "end_ns": 100, "phases_ns": {"source": 62, "device": 35, "after": 3}}]


def run(scenario, repeat, rows, measured=(), faults=(), right=None):
    """A run of one pod: (cause, truth, measured) of each row, and points of each cause that was seen."""
    causes = [{"cause": cause, "truth": truth, "measured": got, "error": got - truth} for cause, truth, got in rows]
    verdict = {"pod": "main", "measured": dict(measured), "causes": causes, "faults": list(faults),
               "leader": {"truth": None, "measured": None, "right": right}}
    return {"scenario": scenario, "repeat": repeat, "load": 1.0, "verdicts": [verdict], "ran": {"full": {"main": {"runs": LOOPS}}}}


def failed(scenario, repeat):
    return {"scenario": scenario, "repeat": repeat, "load": 1.0, "error": "RuntimeError: no account"}


def head(repeats, scenarios=None):
    found = {"seed": 1, "repeats": repeats, "revision": "abc", "began": "today", "kernel": "6.1", "processors": 2,
             "noise": {"band_points": 0.5}}
    return {**found, "scenarios": scenarios} if scenarios else found


def tables(repeats, runs, scenarios=None):
    return table.table(head(repeats, scenarios), runs, SCENARIOS, judge.LIMITS)


def cells(text, heading):
    """The rows of the table below a heading."""
    below = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


DECODES = [
    run("decode", 0, [("active", 40, 40), ("cpu", 60, 59), ("other", 0, 1)], {"active/none": 40, "cpu": 59, "lock": 1}),
    run("decode", 1, [("active", 40, 40), ("cpu", 60, 57), ("other", 0, 3)], {"active/none": 40, "cpu": 57, "lock": 3}),
]
WAITS = [
    run("wait", 0, [("active", 50, 50), ("cpu", 20, 22), ("lock", 30, 28)], {"active/none": 50, "cpu": 22, "lock": 28}),
    run("wait", 1, [("active", 50, 50), ("cpu", 20, 22), ("lock", 30, 28)], {"active/none": 50, "cpu": 22, "lock": 28}),
]


class Tables(unittest.TestCase):
    def test_a_cause_has_truth_measured_error_and_its_spreads(self):
        text = tables(2, DECODES + WAITS)
        of = {row[0]: row[1:] for row in cells(text, "By cause")}
        # Errors -1, -3 of one scenario, and +2, +2 of another.
        self.assertEqual(of["`cpu`"], ["4", "40.0", "40.0", "+0.0", "2.0", "2.4", "0.7", "-3.0", "4 of 4"])
        self.assertEqual(of["`lock`"], ["2", "30.0", "28.0", "-2.0", "2.0", "0.0", "0.0", "-2.0", "2 of 2"])

    def test_one_run_has_no_spread(self):
        (cpu,) = [row for row in cells(tables(1, DECODES[:1]), "By cause") if row[0] == "`cpu`"]
        self.assertEqual(cpu[6:8], ["–", "–"])

    def test_what_is_left_of_other_rows_is_no_cause(self):
        text = tables(2, DECODES)
        self.assertNotIn("`other`", [row[0] for row in cells(text, "By cause")])
        self.assertIn("`other`", [row[3] for row in cells(text, "By scenario")])

    def test_a_cause_that_a_scenario_does_not_name_is_claimed(self):
        claimed = cells(tables(2, DECODES + WAITS), "Claimed where it was not")
        self.assertEqual(claimed, [["`lock`", "2", "2.0", "3.0", "`decode`"]])

    def test_both_causes_of_a_sum_are_named(self):
        runs = [run("decode", 0, [("cpu+cpu_wait", 60, 60)], {"cpu": 40, "cpu_wait": 20, "sync": 1}), WAITS[0]]
        claimed = {row[0]: row[1:] for row in cells(tables(1, runs), "Claimed where it was not")}
        # Of `cpu_wait` the other scenario, which does not name it, has nothing: that is no row.
        self.assertEqual(claimed, {"`sync`": ["2", "0.5", "1.0", "`decode`"]})

    def test_definitions_are_counted_apart(self):
        runs = DECODES + [
            run("absent", 0, [("idle/no_process", 100, 100)], {"idle/no_process": 100}),
            run("absent", 1, [("idle/no_process", 100, 50)], {"idle/no_process": 50, "cpu": 50}, ["holds 50 points"]),
            run("refused", 0, [("active", 30, 30), ("unknown/no_evidence", 66, 70)], {"unknown/no_evidence": 70}, right=True),
            run("ahead", 0, [("active", 100, 99), ("any stall", 0, 1)], {"active/none": 99, "sync": 1}),
            failed("decode", 2),
        ]
        text = tables(3, runs)
        self.assertIn("2 of 3 with a counterfactual truth, 1 of 1 where nothing stalls by the device's log, 2 of 3 by definition", text)
        self.assertIn("which one leads: 0 of 0", text)
        shown = [row[0] for row in cells(text, "By cause")]
        self.assertEqual(shown, ["`active`", "`any stall`", "`cpu`"])
        self.assertEqual([row[0] for row in cells(text, "By definition")], ["`idle/no_process`", "`unknown/no_evidence`"])

    def test_a_leading_cause_counts_where_a_removal_says_which(self):
        runs = [{**one, "verdicts": [{**one["verdicts"][0], "leader": {"right": right}}]} for one, right in zip(DECODES, (True, False))]
        text = tables(2, runs)
        self.assertIn("which one leads: 1 of 2", text)
        self.assertEqual(cells(text, "By scenario")[0][-1], "1 of 2")

    def test_a_scenario_says_of_how_many_runs_it_is(self):
        rows = cells(tables(3, DECODES + [failed("decode", 2)]), "By scenario")
        self.assertEqual([row[1] for row in rows], ["2 of 3", "", ""])

    def test_the_loops_account_stands_beside_the_one_cause_of_its_phase(self):
        shown = [row[7] for row in cells(tables(2, DECODES + WAITS), "By scenario")]
        self.assertEqual(shown, ["", "62.0", "", "", "", ""])
        self.assertIn("differ from the truth by 2.0 points in the mean, at most by +2.0 (`decode`)", tables(2, DECODES))

    def test_a_part_of_a_study_says_that_it_is_one(self):
        self.assertIn("**This study is partial: 2 of 6 runs.", tables(3, DECODES, ["decode", "wait"]))
        self.assertIn("* Runs: 4 of 4, ", tables(2, DECODES + WAITS, ["decode", "wait"]))
        self.assertNotIn("partial", tables(2, DECODES + WAITS, ["decode", "wait"]))
        # A head that does not name its scenarios: those that were begun.
        self.assertIn("partial: 3 of 4 runs", tables(2, DECODES + WAITS[:1]))
        self.assertNotIn("partial", tables(2, DECODES + WAITS))

    def test_the_length_of_a_run_is_said_if_the_result_has_it(self):
        text = lambda **more: table.table({**head(2), **more}, DECODES, SCENARIOS, judge.LIMITS).splitlines()[0]
        self.assertIn("1 scenarios, 2 repeats, 4 s of steps each, seed 1,", text(seconds=4.0))
        self.assertIn(" 2.5 s of steps each,", text(seconds=2.5))
        self.assertIn("1 scenarios, 2 repeats, seed 1,", text())

    def test_attempts_at_one_repeat_are_one_run(self):
        self.assertIn("partial: 2 of 3 runs", tables(3, [DECODES[0], DECODES[0], DECODES[1]]))

    def test_a_failed_run_is_named(self):
        self.assertIn("* `decode`, repeat 2: RuntimeError: no account", tables(3, DECODES + [failed("decode", 2)]))

    def test_a_result_of_failures_alone_is_a_table_too(self):
        self.assertIn("0 of 1 with a counterfactual truth", tables(1, [failed("decode", 0)]))


class Documents(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.result, self.document = Path(directory.name) / "result", Path(directory.name) / "document"
        self.document.write_text(f"before\n{table.BEGIN}\nTHE OLD\n{table.END}\nafter\n")

    def put(self, runs, partial=False, end="\n"):
        lines = [json.dumps(line) for line in ({"study": head(2)}, *runs)]
        self.result.write_text("\n".join(lines) + end)
        with contextlib.redirect_stderr(io.StringIO()):
            code = accuracy.document(self.document, self.result, partial)
        return code, self.document.read_text()

    def test_a_whole_result_takes_the_place_of_the_old(self):
        code, text = self.put(DECODES)
        self.assertEqual(code, 0)
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
        self.assertNotIn("THE OLD", text)

    def test_a_part_of_a_study_is_documented_only_if_that_is_wanted(self):
        code, text = self.put(DECODES[:1])
        self.assertEqual((code, "THE OLD" in text), (1, True))
        code, text = self.put(DECODES[:1], partial=True)
        self.assertEqual((code, "THE OLD" in text), (0, False))

    def test_a_line_that_was_cut_short_is_no_run(self):
        code, text = self.put(DECODES, end="")
        self.assertEqual((code, "THE OLD" in text), (1, True))

    def test_a_study_that_did_not_begin_is_an_error(self):
        self.result.write_text("")
        with self.assertRaisesRegex(ValueError, "holds no result"):
            table.read(self.result)


if __name__ == "__main__":
    unittest.main()
