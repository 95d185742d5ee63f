#!/usr/bin/env python3
"""Makes one batch and ends.

usage: batch.py STAGES
"""

import json
import sys

from stages import Chain

if __name__ == "__main__":
    Chain(json.loads(sys.argv[1]))()
