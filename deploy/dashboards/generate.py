#!/usr/bin/env python3
"""Writes the Grafana dashboards (fleet.json, workload.json, health.json) from fleet.py, workload.py and health.py.

    generate.py            writes them
    generate.py --check    fails if one is not current

Needs Python 3.11 or later and what requirements.txt names.
"""

import json
import pathlib
import sys

import fleet
import health
import workload
from grafana_foundation_sdk.cog.encoder import JSONEncoder

HERE = pathlib.Path(__file__).resolve().parent
PAGES = {"fleet": fleet, "workload": workload, "health": health}


def text(page):
    board = page.build().build()
    for number, panel in enumerate(board.panels, 1):
        panel.id_val = number
    return json.dumps(board, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, page in PAGES.items():
        path = HERE / f"{name}.json"
        made = text(page)
        if not check:
            path.write_text(made)
        elif not path.is_file() or path.read_text() != made:
            stale.append(path.name)
    if stale:
        sys.exit(f"not current: {', '.join(stale)}: run deploy/dashboards/generate.py")


if __name__ == "__main__":
    main()
