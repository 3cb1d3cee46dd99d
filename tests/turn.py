#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which tests are due at this commit.

Usage: turn.py ROTATION COMMITS LABEL < NAMES

NAMES are tests of the build LABEL, one a line, as `meson test --list` prints them or bare. ROTATION has
lines `LABEL PATTERN PERIOD  # reason`: a test whose name fits PATTERN runs at every PERIOD-th commit
only. COMMITS, the number of commits up to this one, decides: each of PERIOD commits in a row takes
those whose place falls on it, so that all of a line run within PERIOD commits. The places of a line
follow those of the line before, so that each commit runs about as many. What no line names always
runs.

Prints the names that are due, one a line; on standard error, in one line, those that are left for
another commit. A line that fits no name of its build is an error (status 1): it would rotate nothing.
"""
import fnmatch
import sys

PERIOD_MAX = 10  # commits; after so many everything has run


def read_lines(path, label):
    """(pattern, period) of each line for this build."""
    found = []
    for number, line in enumerate(open(path), 1):
        fields = line.split("#", 1)[0].split()
        if not fields:
            continue
        if len(fields) != 3 or not fields[2].isdigit() or not 2 <= int(fields[2]) <= PERIOD_MAX:
            sys.exit(f"{path}:{number}: not `LABEL PATTERN PERIOD`, a period of 2 to {PERIOD_MAX}")
        if fields[0] == label:
            found.append((fields[1], int(fields[2])))
    return found


def main():
    path, commits, label = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    names = [line.strip().split(" / ")[-1] for line in sys.stdin if line.strip()]
    later = set()
    taken = set()
    place = 0
    for pattern, period in read_lines(path, label):
        fits = [name for name in names if fnmatch.fnmatchcase(name, pattern) and name not in taken]
        if not fits:
            sys.exit(f"{path}: no test of {label} is called {pattern}")
        taken.update(fits)
        later.update(name for at, name in enumerate(fits, place) if (commits + at) % period != 0)
        place += len(fits)
    for name in names:
        if name not in later:
            print(name)
    if later:
        print(f"{label}: left for another commit: {', '.join(sorted(later))}", file=sys.stderr)


if __name__ == "__main__":
    main()
