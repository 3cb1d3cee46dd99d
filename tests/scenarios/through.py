#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays every scenario through a real backend, and holds the table of README.md to what came of it: a
row says "yes" and the file plays, or it says what keeps it from being played. The last columns are of
Vulkan, and of CUDA and HIP.

usage: through.py BACKEND WORLDS README FILE..."""
import os
import re
import subprocess
import sys

SKIP = 77


def table(path, column):
    """What that column of the table says, by file name."""
    says = {}
    with open(path, encoding='utf-8') as readme:
        for line in readme:
            cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
            name = re.fullmatch(r'`([^`]+\.world)`', cells[2]) if len(cells) == 6 else None
            if name:
                says[name.group(1)] = cells[column]
    return says


def outcomes(output):
    """'yes' or what the player lacks, by file name; failures are left out."""
    seen = {}
    for line in output.splitlines():
        found = re.match(r'(ok|n/a) +(\S+\.world): (.*)', line)
        if found:
            name = os.path.basename(found.group(2))
            seen[name] = 'yes' if found.group(1) == 'ok' else found.group(3)
    return seen


def main():
    backend, worlds, readme, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    done = subprocess.run([worlds, '--device', backend, '--twice', *files], text=True,
                          stdout=subprocess.PIPE, check=False)
    print(done.stdout, end='')
    if done.returncode == SKIP:
        return SKIP
    says, seen = table(readme, 4 if backend == 'vulkan' else 5), outcomes(done.stdout)
    bad = done.returncode != 0
    for name in sorted({os.path.basename(f) for f in files} | set(says)):
        if seen.get(name) != says.get(name):
            print(f'{name}: the table says {says.get(name)}, and it is {seen.get(name, "a failure")}')
            bad = True
    print(f'{sum(v == "yes" for v in seen.values())} of {len(files)} scenarios through {backend}, '
          f'{sum(v != "yes" for v in seen.values())} that it can not be shown')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
