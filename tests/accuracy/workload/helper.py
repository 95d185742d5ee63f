#!/usr/bin/env python3
"""A helper program: for each request on its standard input, does its stages and answers with a batch.

usage: helper.py STAGES
"""

import json
import struct
import sys

from stages import Chain


def main():
    chain = Chain(json.loads(sys.argv[1]))
    requests, answers = sys.stdin.buffer.raw, sys.stdout.buffer
    while requests.read(4):
        data = chain()
        answers.write(struct.pack("<I", len(data)))
        answers.write(data)
        answers.flush()


if __name__ == "__main__":
    main()
