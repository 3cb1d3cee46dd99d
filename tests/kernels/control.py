#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gate of resources.py must find what bad.cu has: control.py RESOURCES.PY ARCHS IMAGE."""
import pathlib
import subprocess
import sys
import tempfile

# What a table of kernels would say: of the last one, blocks and an argument that it is not built for.
LISTED = """plm_bad_array 256 32
plm_bad_print 256 32
plm_bad_assert 256 32
plm_bad_size 128 48
plm_bad_missing 256 32
"""
# Of each architecture. A fat binary does not say which kernel calls what, so all are charged with it.
FOUND = [
    ("plm_bad_array", "bytes of local memory a thread"),
    ("plm_bad_print", "uses "),
    ("plm_bad_assert", "uses "),
    ("plm_bad_size", "is compiled for blocks of 256 threads, and run in 128"),
    ("plm_bad_size", "has an argument of 32 bytes, and is given 48"),
    ("plm_bad_missing", "is in kernels/kernels.def, and in no image"),
]


def report(resources, archs, listed, image):
    with tempfile.TemporaryDirectory() as work:
        program = pathlib.Path(work, "list")
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}END\n", encoding="ascii")
        program.chmod(0o755)
        done = subprocess.run([sys.executable, resources, "--archs", archs, "--list", program, image],
                              check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    resources, archs, image = sys.argv[1:]
    status, text = report(resources, archs + ",none", LISTED, image)
    wrong = [] if status == 1 else [f"the exit status is {status}"]
    for arch in archs.split(","):
        wrong += [f"not found: {kernel} ({arch}) {what}" for kernel, what in FOUND
                  if not any(line.startswith(f"{kernel} ({arch}) ") and what in line
                             for line in text.split("\n"))]
    if "has nothing for none" not in text:
        wrong.append("not found: an architecture that is missing")
    unlisted = report(resources, archs, "", image)[1]
    if f"plm_bad_print ({archs.split(',')[0]}) is not in kernels/kernels.def" not in unlisted:
        wrong.append("not found: a kernel that is not listed")
    if wrong:
        print(text, *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
