"""Counts checks, and says what failed."""

import os


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, problem):
        """A check holds if `problem` is empty: no text, no list, None. True and False are refused: they tell nothing."""
        assert not isinstance(problem, bool), name
        if not problem:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED {name}")
        for line in str(problem if isinstance(problem, str) else "\n".join(map(str, problem))).splitlines()[:40]:
            print(f"    {line}")

    def equal(self, name, found, wanted):
        self.check(name, None if found == wanted else f"found  {found!r}\nwanted {wanted!r}")

    def skip(self, name, why):
        if os.environ.get("REQUIRE_ALL"):
            self.check(name, why)
        else:
            print(f"skipped: {name}, {why}")
