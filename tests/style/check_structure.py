#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds two things of how files stand to each other in core and backends:

 - no circle: where a file calls functions of another, that one does not lead back to it. Calls
   through a table of functions do not count: they are how a lower layer calls a higher one.
 - in core/engine no header has more than MOST_INCLUDERS includers, so that no header tells every
   file everything.

Usage: check_structure.py ROOT. Prints each breach; exit status 1 when there is one.
       check_structure.py --self-test: looks for breaches in files that have some.
"""
import collections
import pathlib
import re
import sys

MOST_INCLUDERS = 12

# Files that may call each other, since what they do is recursive: an interpreter's expressions call
# filters, whose arguments are expressions; operands are expressions; a list's hash is that of its
# values; and a value that is to be suggested to a user is tried by a run of the whole loop, within
# the loop.
RECURSIVE = (
    {f"core/template/{name}.c" for name in (
        "access", "calls", "eval", "exec", "filters", "format", "methods", "print", "sequences",
        "string_methods", "tests", "text")},
    {"core/template/operators.c", "core/template/parser.c"},
    {"core/template/collection.c", "core/template/value.c"},
    {"core/plan/profile.c", "core/plan/profile_prove.c", "core/plan/profile_stress.c"},
)

# A definition stands in column 0, and so does its brace: clang-format puts them there.
DEFINITION = re.compile(r"^(?!static\b|typedef\b)[a-zA-Z_][^;{}()#=]*?\b(\w+)\s*\([^;{}]*\)\s*\n\{", re.M)
# A name that is a member or a tag is no function.
USE = re.compile(r"(?<![\w.])(?<!->)(?<!struct )(?<!enum )(?<!union )\b([a-z]\w+)\b")


def code(text):
    """Without comments and string literals, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def calls(texts):
    """Of each file, the files whose functions it names. A function that several files define, as
    backends do, belongs to none."""
    homes = collections.defaultdict(set)
    for name, text in texts.items():
        for function in DEFINITION.findall(text):
            homes[function].add(name)
    graph = {name: set() for name in texts}
    for name, text in texts.items():
        for word in set(USE.findall(text)):
            home = homes.get(word, ())
            if len(home) == 1 and name not in home:
                graph[name] |= home
    return graph


def circles(graph):
    """The strongly connected parts of more than one file, each sorted (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = stack[stack.index(name):]
            del stack[stack.index(name):]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(found)


def includers(texts):
    count = collections.Counter()
    for text in texts.values():
        count.update(set(re.findall(r'^\s*#\s*include\s+"(core/engine/[^"]+)"', text, re.M)))
    return count


def check(texts):
    breaches = []
    graph = calls({name: code(text) for name, text in texts.items() if name.endswith(".c")})
    for part in circles(graph):
        if not any(group.issuperset(part) for group in RECURSIVE):
            breaches.append("a circle of files: " + ", ".join(part))
    for header, n in sorted(includers(texts).items()):
        if n > MOST_INCLUDERS:
            breaches.append(f"{header}: {n} includers, and {MOST_INCLUDERS} are the most")
    return breaches


def self_test():
    def file(name, *called):
        body = "".join(f"    plm_{other}();\n" for other in called)
        return f"core/x/{name}.c", f'#include "core/engine/a.h"\n\nint plm_{name}(void)\n{{\n{body}    return 0;\n}}\n'

    # a calls b and c; b calls c, which calls b; d is named in a comment, by a member and by a tag.
    texts = dict([file("a", "b", "c"), file("b", "c"), file("c", "b"), file("d", "a")])
    texts["core/x/a.c"] += "// plm_d()\nstatic const struct plm_d *at = x->plm_d;\n"
    found = check(texts)
    assert found == ["a circle of files: core/x/b.c, core/x/c.c"], found
    # Recursion that is named, and a third file that it does not name.
    two = sorted(RECURSIVE[1])
    texts = {two[0]: file("a", "b")[1], two[1]: file("b", "a")[1]}
    assert not check(texts), check(texts)
    texts = dict([(two[0], file("a", "b")[1]), (two[1], file("b", "c")[1]), file("c", "a")])
    assert check(texts) == [f"a circle of files: {two[0]}, {two[1]}, core/x/c.c"], check(texts)
    texts = dict([file(f"f{i}") for i in range(MOST_INCLUDERS)])
    assert not check(texts), check(texts)
    texts["core/x/one.h"] = '#include "core/engine/a.h"\n'
    found = check(texts)
    assert found == [f"core/engine/a.h: {MOST_INCLUDERS + 1} includers, and {MOST_INCLUDERS} are the most"], found
    print("a circle and a header with too many includers were found")
    return 0


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    root = pathlib.Path(sys.argv[1])
    paths = [p for folder in ("core", "backends") for p in sorted((root / folder).rglob("*")) if p.suffix in (".c", ".h")]
    breaches = check({p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in paths})
    print("\n".join(breaches) or f"{len(paths)} files keep the structure")
    return 1 if breaches or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
