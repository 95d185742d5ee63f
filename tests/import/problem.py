"""What stops an import, and what is only said."""

import sys
from collections import Counter


class Problem(Exception):
    """An import cannot go on. Says what was attempted, on what, and what to do."""


class Notes:
    """What was left out or taken for granted: counted while reading, said once at the end."""

    def __init__(self):
        self.counts = Counter()
        self.lost = 0

    def count(self, what, amount=1):
        self.counts[what] += amount

    def say(self):
        for what, amount in sorted(self.counts.items()):
            print(f"import: {amount} × {what}", file=sys.stderr)
        if self.lost:
            print(f"import: {self.lost} events were lost by the recorder: what threads did then is guessed", file=sys.stderr)
