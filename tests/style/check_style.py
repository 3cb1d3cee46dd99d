#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces what the compiler cannot: who may include whom, that nothing outside core/base reads the
clock, randomness or malloc, that the library neither prints nor exits, that files and
functions stay short, and that no work is left open in a comment.

Usage: check_style.py ROOT. Prints each breach as FILE:LINE: what; exit status 1 when there is one.
"""
import pathlib
import re
import sys

# Which of our headers a folder may include, as prefixes; the first matching rule decides.
BASE = ["core/base/"]
DEVICE = BASE + ["kernels/abi.h", "kernels/ops.def", "kernels/types.def", "core/backend.h", "core/device.h"]
MEM = DEVICE + ["core/mem/"]
PLAN_KV = MEM + ["core/plan/", "core/kv/"]
FORMULA = BASE + ["kernels/abi.h", "core/plan/", "core/mem/slabs.h", "core/kv/group.h"]
CONTRACT = BASE + ["core/backend.h", "kernels/abi.h", "kernels/ops.def", "kernels/types.def"]
SHARED = ["backends/panel/", "backends/hostmem/", "backends/shared/"]
RULES = [
    ("core/plimsoll.h", []),
    ("core/base/", BASE),
    ("core/backend.h", BASE + ["kernels/abi.h", "kernels/ops.def"]),
    ("core/device.h", DEVICE),
    ("core/device/", DEVICE + ["core/device/"]),
    ("core/mem/", MEM),
    # Pure arithmetic: numbers only, no device.
    ("core/plan/cost.", BASE + ["kernels/abi.h", "core/plan/"]),
    ("core/plan/plan.", FORMULA),
    ("core/plan/window_pools.", FORMULA),
    ("core/plan/replan.", FORMULA),
    ("core/plan/suggest.", FORMULA),
    ("core/plan/", PLAN_KV),
    ("core/kv/", MEM + ["core/kv/"]),
    ("core/template/", BASE + ["core/template/"]),
    ("core/chat/", BASE + ["core/template/", "core/chat/"]),
    ("core/gguf/", BASE + ["kernels/abi.h", "kernels/types.def", "core/gguf/"]),
    ("core/tokenizer/", BASE + ["core/gguf/", "core/tokenizer/"]),
    ("core/model/", PLAN_KV + ["kernels/spans.def", "core/gguf/", "core/model/"]),
    ("core/sched/", PLAN_KV + ["core/sched/", "kernels/sampling.h"]),
    ("core/", ["core/", "kernels/"]),
    # What backends share, the backends, and the list of them.
    ("backends/panel/", CONTRACT + ["backends/panel/"]),
    ("backends/hostmem/", CONTRACT + ["backends/hostmem/"]),
    ("backends/shared/", CONTRACT + ["backends/shared/"]),
    ("backends/cpu/", CONTRACT + SHARED + ["backends/cpu/", "kernels/sampling.h"]),
    ("backends/sim/", CONTRACT + SHARED + ["backends/sim/"]),
    ("backends/vulkan/", CONTRACT + SHARED + ["backends/vulkan/", "kernels/spans.def"]),
    ("backends/gpudrv/", CONTRACT + SHARED + ["backends/gpudrv/", "kernels/kernels.def"]),
    ("backends/cuda/", CONTRACT + SHARED + ["backends/gpudrv/", "backends/cuda/"]),
    ("backends/hip/", CONTRACT + SHARED + ["backends/gpudrv/", "backends/hip/"]),
    ("backends/", CONTRACT + ["backends/"]),
    # Device code; simt.h is the emulator's, which takes the place of a compiler's own.
    ("kernels/", ["kernels/abi.h", "kernels/types.", "kernels/sampling.h", "kernels/lib/", "simt.h"]),
    ("shaders/", ["shaders/", "kernels/abi.h"]),
    ("tools/", ["core/plimsoll.h", "tools/"]),
    ("examples/", ["plimsoll.h", "core/plimsoll.h"]),
]

# Calls that belong to core/base alone, or to no library at all.
ALLOCATION = r"malloc|calloc|realloc|reallocarray|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign"
CLOCK = r"time|clock|clock_gettime|gettimeofday|nanosleep|usleep|sleep"
RANDOM = r"rand|random|srand|srandom|getrandom|drand48"
NEVER = (
    r"printf|puts|putchar|fprintf|vprintf|perror|abort|exit|_exit|assert|signal|sigaction|setlocale|"
    r"getenv|secure_getenv|setenv|chdir|system"
)
# What the C library does by the locale of the program around us; core/base/text.h does it as in C.
LOCALE = "vsnprintf|strtod|strtof|strtold|atof|sscanf|fscanf|strcasecmp|strncasecmp|is(?:alpha|alnum|upper|lower|space|print|punct)|tolower|toupper"
FLOAT = r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:L|l)?[aefgAEFG]"
# Longer ones are no longer taken in at a glance.
FILE_LINES = 1200
FUNCTION_LINES = 70
# clang-format keeps C within 100 columns; kernels may be aligned by hand where that says more.
KERNEL_COLUMNS = 120

CALL = r"(?<![\w>.*])(?:{})\s*\("


def code_lines(text):
    """Lines with comments and string literals blanked, so that words in prose do not count."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S).split("\n")


def includes(name, text, breaches):
    allowed = next((rule for prefix, rule in RULES if name.startswith(prefix)), None)
    if allowed is None:
        return
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if found and not any(found.group(1).startswith(prefix) for prefix in allowed):
            breaches.append(f"{name}:{number}: may not include {found.group(1)}")


def fused(name, text, breaches):
    """A driver may take fma() apart and reorder it; plm_fma keeps one order on every driver."""
    if not name.startswith("shaders/") or name == "shaders/lib/float.glsl":
        return
    for number, line in enumerate(code_lines(text), 1):
        if re.search(CALL.format("fma"), line):
            breaches.append(f"{name}:{number}: shaders call plm_fma(), not fma()")


def kernels(name, text, breaches):
    """Device code is one source for all compilers, and says nothing at run time."""
    if not name.startswith("kernels/"):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > KERNEL_COLUMNS:
            breaches.append(f"{name}:{number}: longer than {KERNEL_COLUMNS} columns")
        if re.match(r'\s*#\s*include\s*["<]/', line):
            breaches.append(f"{name}:{number}: an absolute path")
        if name.endswith(".cu") and re.match(r"\s*#\s*(if|ifdef|ifndef)\b", line):
            breaches.append(f"{name}:{number}: what differs between compilers stands in kernels/lib")
    for number, line in enumerate(code_lines(text), 1):
        found = re.search(CALL.format(f"{ALLOCATION}|{NEVER}"), line)
        if found:
            breaches.append(f"{name}:{number}: kernels never call {found.group().rstrip('( ')}()")


def calls(name, text, breaches):
    if not name.startswith(("core/", "backends/")):
        return
    banned = [("the library never calls", NEVER)]
    if not name.startswith("core/base/"):
        banned += [("only core/base may call", f"{ALLOCATION}|{CLOCK}|{RANDOM}")]
    for number, line in enumerate(code_lines(text), 1):
        for what, names in banned:
            found = re.search(CALL.format(names), line)
            if found:
                breaches.append(f"{name}:{number}: {what} {found.group().rstrip('( ')}()")


def call_text(text, at):
    """From the parenthesis that opens at or behind at to the one that closes it, strings included."""
    depth, quoted, i = 0, False, text.index("(", at)
    begin = i
    while i < len(text):
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "()":
            depth += 1 if c == "(" else -1
            if depth == 0:
                break
        i += 1
    return text[begin:i]


def locales(name, text, breaches):
    """Texts for machines have points whatever the locale. The tools leave numbers in the C locale."""
    if name.startswith("tools/"):
        for number, line in enumerate(code_lines(text), 1):
            if re.search(r"(?<!\w)setlocale\s*\(\s*(?!LC_CTYPE)", line):
                breaches.append(f"{name}:{number}: a tool may set no more of the locale than LC_CTYPE")
    if not name.startswith(("core/", "backends/")) or name.startswith("core/base/text."):
        return
    for number, line in enumerate(code_lines(text), 1):
        found = re.search(CALL.format(LOCALE), line)
        if found:
            breaches.append(f"{name}:{number}: {found.group().rstrip('( ')}() goes by the locale: core/base/text.h")
    for found in re.finditer(r"(?<!\w)snprintf\s*\(", text):
        if re.search(FLOAT, call_text(text, found.start()).replace("%%", "")):
            number = text.count("\n", 0, found.start()) + 1
            breaches.append(f"{name}:{number}: snprintf() of a float goes by the locale: plm_snprintf()")


def errors(name, lines, breaches):
    """A plim_error without its size is told no numbers."""
    for number, line in enumerate(lines, 1):
        if re.search(r"\bplim_error \w+ = \{0\}", line):
            breaches.append(f"{name}:{number}: a plim_error begins as PLIM_INIT(plim_error)")


def functions(name, lines, breaches):
    """A function's braces stand alone in column 0: clang-format puts them there."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin is not None:
            if number - begin > FUNCTION_LINES:
                breaches.append(f"{name}:{begin}: a function of {number - begin} lines; split it")
            begin = None


def packages(root, breaches):
    """The README's commands name every package that the scripts install for a build and its tests."""
    script = (root / "tools/lib/common.sh").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    told = {word for line in re.findall(r"^apt-get install ([^#\n]*)", readme, re.M) for word in line.split()}
    for name in ("build_packages", "test_packages"):
        listed = re.search(rf"^{name}=\(([^)]*)\)", script, re.M).group(1).split()
        breaches.extend(f"README.md: no command installs {p} of {name} in tools/lib/common.sh"
                        for p in listed if p not in told)


def main():
    root = pathlib.Path(sys.argv[1])
    breaches = []
    files = [
        path
        for folder in ("core", "backends", "kernels", "shaders", "tools", "examples", "tests")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".c", ".h", ".def", ".cu", ".cuh", ".cc", ".comp", ".glsl") and path.is_file()
    ]
    for path in files:
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        if "SPDX-License-Identifier: Apache-2.0" not in text.split("\n", 1)[0]:
            breaches.append(f"{name}:1: no SPDX line")
        lines = text.split("\n")
        if len(lines) > FILE_LINES:
            breaches.append(f"{name}: {len(lines)} lines; split it")
        errors(name, lines, breaches)
        functions(name, lines, breaches)
        for number, line in enumerate(lines, 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                breaches.append(f"{name}:{number}: unfinished work belongs into an issue")
        includes(name, text, breaches)
        calls(name, text, breaches)
        locales(name, text, breaches)
        fused(name, text, breaches)
        kernels(name, text, breaches)
    packages(root, breaches)
    print("\n".join(breaches) or f"{len(files)} files keep the rules")
    return 1 if breaches or not files else 0


if __name__ == "__main__":
    sys.exit(main())
