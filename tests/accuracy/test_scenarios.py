#!/usr/bin/env python3
"""The scenarios, without running any: each says what its case is, and asks its workload for what that can do."""

import functools
import inspect
import json
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import accuracy  # noqa: F401 (registers them all)
from bench.lab import Lab
from bench.scenario import ALL

# The workload, which the lab finds.
import device
import sources
import stages


class Paper(Lab):
    """A lab that has nothing: cases can be made, and not run."""

    def __init__(self):
        self.seed, self.seconds = 1, 7.0
        self.hash_ms, self.python_ms = 60.0, 180.0
        self.server, self.features = ["10.0.0.2", 1], ["10.0.0.2", 2]
        self.disk = SimpleNamespace(mount=Path("/disk"), number="7:0")
        self.slow = SimpleNamespace(mount=Path("/slow"), number="7:1")

    def data(self, disk=None, mib=96):
        return "/disk/data"

    def small_files(self, count=1500, kib=16):
        return "/slow/files"


def cases():
    """Every scenario with its case, of several draws."""
    lab = Paper()
    for one in ALL.values():
        for repeat in range(5):
            lab.begin(one.name, repeat)
            yield one, one.make(lab)


def loops(case):
    """The configurations of a case's loops."""
    pods = [pod for variant in case.variants.values() for pod in variant.pods]
    return [process.config for pod in pods for process in pod.processes if process.config]


def every(test):
    """A test of each of them."""

    @functools.wraps(test)
    def run(self):
        for one, case in cases():
            with self.subTest(one.name):
                test(self, one, case)

    return run


def takes(made, words):
    """Whether a function or class takes these words."""
    inspect.signature(made).bind(**words)


class Scenarios(unittest.TestCase):
    @every
    def test_a_case_has_the_truth_that_its_scenario_says(self, one, case):
        self.assertIn(one.truth, ("removal", "log", "definition"))
        self.assertEqual(case.no_stall, one.truth == "log")
        self.assertEqual(bool(case.definitions), one.truth == "definition")
        # What holds by definition is in no need of a removal, and no removal can say it.
        if case.definitions:
            self.assertFalse(case.causes)
        if one.truth == "removal":
            self.assertTrue(case.causes)

    @every
    def test_no_time_is_in_two_truths_of_a_pod(self, _, case):
        # Two differences of one name would add up to the one between their ends.
        for pod in {cause.pod for cause in case.causes}:
            names = [name for cause in case.causes if cause.pod == pod for name in cause.names]
            self.assertEqual(len(names), len(set(names)))

    @every
    def test_a_phase_is_that_of_a_single_cause(self, one, case):
        if one.phase:
            pods = [cause.pod for cause in case.causes]
            self.assertIn(one.phase, ("source", "after"))
            self.assertEqual(len(pods), len(set(pods)))
            self.assertTrue(pods)

    @every
    def test_a_truth_compares_the_same_loops(self, _, case):
        for cause in case.causes:
            counts = set()
            for name in (next(iter(case.variants)), cause.of, cause.less):
                (pod,) = [pod for pod in case.variants[name].pods if pod.name == cause.pod]
                counts.add(sum(bool(process.config) for process in pod.processes))
            self.assertEqual(len(counts), 1)
            self.assertTrue(counts.pop())

    @every
    def test_the_workload_takes_what_it_is_asked_for(self, _, case):
        for config in loops(case):
            config = json.loads(json.dumps(config))
            source = config["source"]
            takes(device.Device, {"device": 0, **config["device"]})
            takes(sources.SOURCES[source["kind"]], {name: value for name, value in source.items() if name != "kind"})
            lists = [source.get(name, []) for name in ("stages", "holding", "pause", "beside", "read", "map")]
            for stage in sum([*lists, *source.get("links", []), config.get("after", [])], []):
                takes(stages.MAKERS[stage["do"]], {name: value for name, value in stage.items() if name != "do"})

    @every
    def test_workers_persist_only_where_there_are_epochs_for_them_to_last(self, _, case):
        for config in loops(case):
            if config["source"].get("persistent"):
                self.assertTrue(config["source"]["epoch"] and config["source"]["workers"])

    def test_some_workers_persist(self):
        self.assertTrue([one.name for one, case in cases() if any(config["source"].get("persistent") for config in loops(case))])

    @every
    def test_a_limit_is_taken_away_alone(self, _, case):
        for cause in case.causes:
            of, less = case.variants[cause.of], case.variants[cause.less]
            if [pod.limits for pod in of.pods] != [pod.limits for pod in less.pods]:
                unlimited = lambda one: replace(one, pods=[replace(pod, limits={}) for pod in one.pods])
                self.assertEqual(unlimited(of), unlimited(less))

    @every
    def test_who_contends_for_a_device_is_there_without_contention_too(self, one, case):
        # A pod that is taken away takes its work on the processors and the wire with it.
        first = next(iter(case.variants.values()))
        for cause in case.causes:
            if cause.names == ("contended",) and len(first.pods) > 1:
                names = [[pod.name for pod in case.variants[name].pods] for name in (cause.of, cause.less)]
                self.assertEqual(names[0], names[1])

    def test_a_draw_is_the_same_each_time(self):
        for (one, first), (_, again) in zip(cases(), cases(), strict=True):
            self.assertEqual((first.parameters, first.variants), (again.parameters, again.variants), one.name)

    def test_the_quick_part_is_five_scenarios_one_of_which_has_a_helper_process(self):
        quick = {one.name: case for one, case in cases() if one.quick}
        self.assertEqual(len(quick), 5)
        self.assertIn("loader", {config["source"]["kind"] for case in quick.values() for config in loops(case)})


if __name__ == "__main__":
    unittest.main()
