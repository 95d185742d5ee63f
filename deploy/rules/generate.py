#!/usr/bin/env python3
"""Writes the PrometheusRule manifest from warpmeter.rules.yaml, the one source of both.

    generate.py            writes warpmeter.prometheusrule.yaml
    generate.py --check    fails if it is not current
    generate.py --runbooks https://git.example.com/warpmeter/blob/main/ [--namespace N] [--label release=prometheus] [--plain]
                           prints it (or, with --plain, the rules) with links that can be followed, and what your
                           Prometheus operator selects rules by
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "warpmeter.rules.yaml"
MANIFEST = HERE / "warpmeter.prometheusrule.yaml"
LINK = "runbook_url: "


def manifest(rules, namespace=None, labels=()):
    """The rules as a Kubernetes object: the same lines, deeper."""
    start = rules.index("groups:\n")
    head = [
        "# Made by generate.py from warpmeter.rules.yaml, where the comments are. Do not edit.",
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        "  name: warpmeter",
        *([f"  namespace: {namespace}"] if namespace else []),
        "  labels:",
        "    app.kubernetes.io/name: warpmeter",
        *(f'    {key}: "{value}"' for key, value in labels),
        "spec:",
    ]
    body = []
    for line in rules[start:].splitlines():
        if line.lstrip().startswith("#"):
            continue
        if line or (body and body[-1]):
            body.append("  " + line if line else "")
    return "\n".join(head + body).rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--runbooks", default="")
    parser.add_argument("--namespace")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    rules = SOURCE.read_text()
    if options.runbooks:
        rules = rules.replace(LINK, LINK + options.runbooks.rstrip("/") + "/")
    labels = [tuple(label.split("=", 1)) for label in options.label]
    text = rules if options.plain else manifest(rules, options.namespace, labels)
    if options.check:
        if not MANIFEST.is_file() or MANIFEST.read_text() != text:
            sys.exit(f"{MANIFEST.name} is not current: run generate.py")
    elif options.plain or options.runbooks or options.namespace or options.label:
        sys.stdout.write(text)
    else:
        MANIFEST.write_text(text)


if __name__ == "__main__":
    main()
