#!/usr/bin/env python3
"""The judge, by verdicts that are known: what is wrong in a daemon's figures must not pass, also where only leaders count."""

import unittest

from bench import judge
from bench.scenario import Case, Cause

SLOW, FAST = {"start_ns": 0, "end_ns": 10**9, "steps": 10}, {"start_ns": 0, "end_ns": 5 * 10**8, "steps": 10}


def ran(run, measured, busy=0.5):
    return {"main": {"runs": [run], "measured": measured, "window_s": 1.0, "busy_s": busy, "share": 1}}


def starved(measured):
    """Half of the time is lost to computing."""
    case = Case({"full": None, "no decode": None}, [Cause(("cpu",), "full", "no decode")])
    return judge.judge(case, {"full": ran(SLOW, measured), "no decode": ran(FAST, {judge.ACTIVE: 1.0}, 1.0)})[0]


def busy(measured):
    """Nothing stalls."""
    return judge.judge(Case({"full": None}, no_stall=True), {"full": ran(SLOW, measured, 1.0)})[0]


def defined(measured):
    """No process opens the device."""
    case = Case({"full": None}, definitions=(("main", "idle/no_process"),))
    return judge.judge(case, {"full": ran(SLOW, measured, 0.0)})[0]


def refused(measured):
    """The device runs for half of the time, and the pod refuses probes."""
    case = Case({"full": None}, definitions=(("main", "unknown/no_evidence"),), beside_active=True)
    return judge.judge(case, {"full": ran(SLOW, measured)})[0]


class Verdicts(unittest.TestCase):
    def right(self, verdict):
        self.assertEqual((verdict["faults"], verdict.get("leader_faults", [])), ([], []))

    def wrong(self, verdict):
        self.assertTrue(verdict["faults"])
        self.assertTrue(verdict.get("leader_faults"), verdict)

    def test_the_truth_passes(self):
        self.right(starved({judge.ACTIVE: 0.5, "cpu": 0.5}))
        self.right(busy({judge.ACTIVE: 1.0}))
        self.right(defined({"idle/no_process": 1.0}))
        self.right(refused({judge.ACTIVE: 0.5, "unknown/no_evidence": 0.5}))

    def test_another_cause_in_front_is_a_fault_of_leaders_too(self):
        self.wrong(starved({judge.ACTIVE: 0.5, "disk_read": 0.3, "cpu": 0.2}))
        self.wrong(starved({judge.ACTIVE: 1.0}))
        self.wrong(busy({judge.ACTIVE: 0.4, "cpu": 0.6}))
        self.wrong(defined({judge.ACTIVE: 0.1, "idle/no_work": 0.9}))
        self.wrong(refused({judge.ACTIVE: 0.5, "disk_read": 0.3, "unknown/no_evidence": 0.2}))
        self.wrong(refused({judge.ACTIVE: 1.0}))

    def test_a_daemon_that_shows_nothing_is_a_fault_of_leaders_too(self):
        for verdict in (starved({}), busy({}), defined({}), refused({})):
            self.wrong(verdict)

    def test_what_is_unknown_by_definition_is_all_that_the_device_did_not_run(self):
        rows = {row["cause"]: (row["truth"], row["error"]) for row in refused({judge.ACTIVE: 0.5, "unknown/no_evidence": 0.5})["causes"]}
        self.assertEqual(rows, {"active": (50.0, 0.0), "unknown/no_evidence": (50.0, 0.0)})
        # As much may be missing as of a state that holds all the time, and no more: `cpu` is what nobody can know.
        for known, faults in ((0.049, 0), (0.051, 1)):
            verdict = refused({judge.ACTIVE: 0.5, "cpu": known, "unknown/no_evidence": 0.5 - known})
            self.assertEqual(len(verdict["faults"]), faults, verdict)
        # Nor is what the device ran unknown.
        self.assertTrue(refused({judge.ACTIVE: 0.47, "unknown/no_evidence": 0.53})["faults"])

    def test_each_cause_is_judged_by_its_own_removal(self):
        # 50 points of the time are lost, 30 to computing and 20 to a lock.
        case = Case({"full": None, "no decode": None, "no lock": None},
                    [Cause(("cpu",), "full", "no decode"), Cause(("lock",), "full", "no lock")])
        other = lambda share: ran({**SLOW, "end_ns": int(10**9 * share)}, {judge.ACTIVE: 1.0})
        full = ran(SLOW, {judge.ACTIVE: 0.5, "cpu": 0.2, "lock": 0.3})
        verdict = judge.judge(case, {"full": full, "no decode": other(0.7), "no lock": other(0.8)})[0]
        rows = {row["cause"]: (row["truth"], row["error"]) for row in verdict["causes"]}
        self.assertEqual(rows["cpu"], (30.0, -10.0))
        self.assertEqual(rows["lock"], (20.0, 10.0))
        self.assertEqual(rows["other"], (0.0, 0.0))

    def test_points_without_another_leader_are_a_fault_of_points_alone(self):
        verdict = starved({judge.ACTIVE: 0.5, "cpu": 0.4, "lock": 0.1})
        self.assertTrue(verdict["faults"])
        self.assertFalse(verdict.get("leader_faults"))


if __name__ == "__main__":
    unittest.main()
