#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up the results of meson test runs.

Usage: tally.py EXPECTED_SKIPS LABEL=testlog.json...

Prints the seconds of each suite, every test that failed, and every skip that tests/expected-skips
does not list; then one line, `N passed, N failed, N skipped`. A skip that is not expected counts as
a failure. Exit status 1 when anything failed or nothing ran.
"""
import json
import sys


def expected_skips(path):
    """Lines `LABEL NAME  # reason`; LABEL * stands for every build."""
    lines = (line.split("#", 1)[0].split() for line in open(path))
    return {tuple(fields) for fields in lines if fields}


def main():
    expected = expected_skips(sys.argv[1])
    passed = failed = skipped = 0
    for argument in sys.argv[2:]:
        label, path = argument.split("=", 1)
        suites = {}
        for line in open(path):
            test = json.loads(line)
            name, result = test["name"].split(" / ")[-1], test["result"]
            suite = test["name"].split(" / ")[0].split(":")[-1]
            suites[suite] = suites.get(suite, 0) + test["duration"]
            if result in ("OK", "EXPECTEDFAIL"):
                passed += 1
            elif result == "SKIP" and {(label, name), ("*", name)} & expected:
                skipped += 1
            else:
                failed += 1
                note = " (not in tests/expected-skips)" if result == "SKIP" else ""
                print(f"{label}: {name}: {result}{note}")
        times = ", ".join(f"{suite} {seconds:.1f} s" for suite, seconds in sorted(suites.items()))
        print(f"{label}: {times}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
