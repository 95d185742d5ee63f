"""Renders the chart."""

import itertools
import pathlib
import subprocess

import yaml

TESTS = pathlib.Path(__file__).resolve().parent
CHART = TESTS.parent
ROOT = CHART.parent.parent

ACCESS = ("cdi", "runtimeClass", "privileged")
PROFILES = ("counters", "full")
VALUES = {"defaults": [], "everything": ["-f", str(TESTS / "everything.yaml")], "nothing": ["-f", str(TESTS / "nothing.yaml")]}


class Helm:
    def __init__(self, major, program):
        self.major = major
        self.program = str(program)

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, cwd=CHART)

    def template(self, *options, release="warpmeter"):
        """The objects, and what it complained of."""
        result = self.run("template", release, ".", "--namespace", "gpu", *options)
        if result.returncode:
            return [], result.stderr
        return [document for document in yaml.safe_load_all(result.stdout) if document], ""


def matrix():
    """Name and options of every combination."""
    for (values, files), access, profile in itertools.product(VALUES.items(), ACCESS, PROFILES):
        yield f"{values}, {access}, {profile}", [*files, "--set", f"deviceAccess={access}", "--set", f"profile={profile}"]


def of_kind(objects, kind):
    return [document for document in objects if document["kind"] == kind]


def only(objects, kind):
    (document,) = of_kind(objects, kind)
    return document


def toml_of(objects):
    return only(objects, "ConfigMap")["data"]["warpmeter.toml"]
