#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes one barrier, warp sync or wait for the kernels before out of the kernels' sources at a time,
and expects that conformance under the emulator fails. One that can go unnoticed is superfluous, or
the emulator's orders are too kind.

Usage: mutate.py [--all | --count N] [--only FILE] ROOT CONFORMANCE COMPILER ARGS...
By default ten places, spread over all. --only: those of one file. The compiler with its arguments
makes a library of a source.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

PLACE = re.compile(r"(__syncthreads|plm_warp_sync|plm_await)\(\);")
# Waves and seeds in turn, until one shows it.
TARGETS = ["simt:32:1", "simt:64:2", "simt:32:3"]
# What goes unnoticed and stays, by file and comment, each with its reason. One that is noticed is stale.
KEPT = {
    ("kernels/sample.cu", "all bests are there"):
        "a distance that is not the one it should be costs time alone",
    ("kernels/lib/float_skinny.cuh", "all lanes have read the slot"):
        "all lanes meet in the product before, which is no fence for memory",
}
SECONDS = 300  # of one run; a mutant that loops longer is caught


def includes(root, name, seen):
    """Adds the files of kernels/ that a file includes, itself among them, but not port*.cuh."""
    if name not in seen and "/port" not in name:
        seen.add(name)
        for other in re.findall(r'#include "(kernels/[^"]+\.cuh)"', (root / name).read_text()):
            includes(root, other, seen)
    return seen


def find_places(root, sources):
    """(file, offset, end, line, comment) of each statement that can be taken out."""
    places = []
    for name in sorted(set().union(*sources.values())):
        text = (root / name).read_text()
        for found in PLACE.finditer(text):
            before = text[: found.start()]
            if "//" not in before[before.rfind("\n") + 1 :]:
                comment = text[found.end() :].split("\n", 1)[0].strip(" /")
                places.append((name, found.start(), found.end(), before.count("\n") + 1, comment))
    return places


class Bench:
    def __init__(self, root, conformance, compiler, folder):
        self.root, self.conformance, self.compiler = root, conformance, compiler
        self.folder = folder

    def build(self, source, changed, text):
        """A library of a source, of which one file has another text. Hidden, its functions are not
        taken for those of the same names in the program."""
        overlay = self.folder / "overlay"
        library = self.folder / (pathlib.Path(source).stem + ".so")
        file = overlay / changed
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        path = file if changed == source else self.root / source
        subprocess.run(self.compiler + [f"-I{overlay}", f"-I{self.root}", f"-I{self.root}/tests/simt",
                                        "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c++", str(path),
                                        "-o", str(library)], check=True)
        file.unlink()
        return library

    def passes(self, library, target):
        command = [self.conformance, target, "--pairs", "0", "--kernels", str(library)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
        if run.returncode not in (0, 1) and run.returncode > 0:
            sys.exit(f"{' '.join(command)}: {run.returncode}\n{run.stdout}{run.stderr}")
        return run.returncode == 0


def unnoticed(bench, sources, place, sound):
    """Whether the place can go and conformance passes with every source that has it."""
    name, begin, end = place[:3]
    text = (bench.root / name).read_text()
    for source in sorted(s for s, files in sources.items() if name in files):
        if source not in sound:
            sound.add(source)
            if not bench.passes(bench.build(source, name, text), TARGETS[0]):
                sys.exit(f"{source} as it is does not pass")
        library = bench.build(source, name, text[:begin] + ";" + text[end:])
        if not all(bench.passes(library, target) for target in TARGETS):
            return False
    return True


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--only")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("conformance")
    parser.add_argument("compiler", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    root = options.root.resolve()
    sources = {
        path.relative_to(root).as_posix(): includes(root, path.relative_to(root).as_posix(), set())
        for path in sorted((root / "kernels").glob("*.cu"))
    }
    places = [p for p in find_places(root, sources) if options.only in (None, p[0])]
    if not options.all and len(places) > options.count:
        places = [places[i * len(places) // options.count] for i in range(options.count)]
    if not places:
        sys.exit("no place to take anything out")
    wrong, sound = 0, set()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(root, options.conformance, options.compiler, pathlib.Path(folder))
        for place in places:
            kept = (place[0], place[4]) in KEPT
            unseen = unnoticed(bench, sources, place, sound)
            wrong += unseen != kept
            print(f"{'FAIL ' if unseen != kept else ''}{place[0]}:{place[3]}: "
                  f"{'unnoticed' if unseen else 'noticed'}{', though on the list' if kept and not unseen else ''}",
                  flush=True)
    print(f"{len(places)} taken out, {wrong} not as expected")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
