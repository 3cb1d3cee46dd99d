#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests make of core/plimsoll.h.

api.py cut HEADER N OUT      the header of an older program: each struct that a caller owns lacks its
                             last N fields (two stay)
api.py calls HEADER OUT      C for null_calls.c: every function with NULL in every place of a pointer
api.py metrics HEADER OUT    C for test_api.c: the names of the fields of plim_metrics, in order
api.py layout HEADER FILE    whether the structs and enums begin as FILE says that released ones did
api.py release HEADER FILE   writes that file: what is in it can never change
"""
import pathlib
import re
import sys

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRUCT = re.compile(r"typedef struct (\w+) \{\n(.*?)\n\} \1;", re.S)


def fields_of(body):
    """Ends of the declarations in a struct's body: offsets behind their semicolons."""
    blank = COMMENT.sub(lambda m: " " * len(m.group()), body)
    return [m.end() for m in re.finditer(";", blank)]


def is_callers(name, body):
    return "uint32_t struct_size;" in body or name == "plim_device_info"


def cut(text, n):
    def shorten(match):
        name, body = match.groups()
        ends = fields_of(body)
        if not is_callers(name, body):
            return match.group()
        keep = max(2, len(ends) - n)
        return f"typedef struct {name} {{\n{body[:ends[keep - 1]]}\n}} {name};"
    return STRUCT.sub(shorten, text)


# A value for each argument by its name, of null_calls.c; every other pointer is a mistake here.
VALUES = {
    "a": "env.plan_text", "b": "env.plan_text", "a_len": "env.plan_bytes", "b_len": "env.plan_bytes",
    "add_special": "true", "bytes": "1", "bytes_per_second": "1e9", "cap": "sizeof(env.text)",
    "chat_json": "env.chat", "device_bytes": "UINT64_C(1) << 32", "element_bytes": "sizeof(plim_device_info)",
    "engine": "env.engine", "err": "&env.err", "event": "&env.event", "id": "1", "ids": "env.ids",
    "json": "true", "len": "strlen(env.chat)", "n": "&env.n", "need": "&env.n", "opts_bytes": "sizeof(*env.opts)",
    "out": "env.text", "parse_special": "true", "path": "env.model", "plan": "env.plan",
    "request": "env.request", "status": "0", "text": "env.chat", "timeout_ms": "0", "worked": "&env.worked",
}
BY_TYPE = {
    "plim_engine_opts *opts": "env.opts", "plim_request_opts *opts": "env.ask",
    "plim_plan **ret": "&env.made_plan", "plim_engine **ret": "&env.made_engine",
    "plim_request **ret": "&env.made_request", "plim_model_info *ret": "&env.info",
    "plim_metrics *ret": "&env.metrics", "plim_device_info *out": "env.devices",
    "plim_metric *out": "env.list", "size_t n": "1",
}
COUNTS = {"plim_device_info *out": "8", "plim_metric *out": "128"}
MAY_BE_NULL = {"err", "need", "n", "worked"}
# NULL is allowed, and anything else would end what the other calls need.
ENDS = {"plim_engine_free", "plim_request_free", "plim_plan_free"}


def value(params, i):
    typed = params[i].replace("const ", "")
    name = re.search(r"(\w+)$", typed).group(1)
    if name == "cap":
        for other in params:
            if other.replace("const ", "") in COUNTS:
                return COUNTS[other.replace("const ", "")]
            if other.endswith("*ids"):
                return "64"
    if typed not in BY_TYPE and name not in VALUES:
        sys.exit(f"api.py: no value in VALUES for {typed}: what may a caller give there?")
    return BY_TYPE.get(typed) or VALUES[name]


def functions(text):
    blank = re.sub(r"\s+", " ", COMMENT.sub(" ", text))
    return re.findall(r"PLIM_API ([\w *]+?)(plim_\w+)\(([^()]*)\);", blank)


def calls(text):
    out = []
    for result, name, args in functions(text):
        result, params = result.strip(), [p.strip() for p in args.split(",")]
        for i, param in enumerate(params):
            if "*" not in param:
                continue
            arg = re.search(r"(\w+)$", param).group(1)
            given = ["NULL" if k == i else value(params, k) for k in range(len(params))]
            call = f"{name}({', '.join(given)})"
            has_err = any(p.endswith("*err") for p in params)
            allowed = arg in MAY_BE_NULL or name in ENDS
            if result == "int" and name != "plim_engine_poll_fd":
                out.append(f'    CHECK_{"ALLOWED" if allowed else "INVALID"}({call}, "{name}", "{arg}", {int(has_err)});')
            elif result == "int":
                out.append(f'    CHECK_NONE({call} < 0, "{name}", "{arg}");')
            elif result == "void":
                out.append(f'    CHECK_VOID({call}, "{name}", "{arg}");')
            elif result == "int64_t":
                out.append(f'    CHECK_NONE({call} == 0, "{name}", "{arg}");')
            else:
                out.append(f'    CHECK_NONE({call} == NULL, "{name}", "{arg}");')
    return "\n".join(out) + "\n"


def metrics(text):
    body = COMMENT.sub(" ", dict(STRUCT.findall(text))["plim_metrics"])
    names = []
    for declaration in body.split(";"):
        kind, _, rest = re.sub(r"\s+", " ", declaration).strip().partition(" ")
        for name in (part.strip() for part in rest.split(",") if part.strip()):
            names += [f"{name}_count", f"{name}_sum_s"] if kind == "plim_histogram" else [name]
    return "".join(f'    "{name}",\n' for name in names if name != "struct_size")


def layout(text):
    """A line for each field of a struct and each value of an enum: what a built program relies on."""
    blank = COMMENT.sub(" ", text)
    lines = []
    for kind, name, body in re.findall(r"(?:typedef )?(struct|enum) (\w+) \{([^{}]*)\}", blank):
        parts = body.split(";" if kind == "struct" else ",")
        lines += [f"{kind} {name}: {' '.join(part.split())}" for part in parts if part.strip()]
    return lines


def check_layout(text, file):
    now = layout(text)
    then = pathlib.Path(file).read_text(encoding="utf-8").splitlines()[1:]
    wrong = []
    for owner in dict.fromkeys(line.partition(":")[0] for line in then):
        was, is_now = ([line for line in lines if line.startswith(owner + ":")] for lines in (then, now))
        wrong += [f"{old!r} is now {new!r}" for old, new in zip(was, is_now + ["gone"] * len(was)) if old != new]
    print("\n".join(wrong) or f"{len(then)} fields and values are where they were, {len(now)} there are")
    return 1 if wrong or not then else 0


def main():
    what, header, *rest = sys.argv[1:]
    text = pathlib.Path(header).read_text(encoding="utf-8")
    if what == "layout":
        return check_layout(text, rest[0])
    if what == "release":
        head = "# The public structs and enums as released: they may grow at their ends alone (api.py)."
        pathlib.Path(rest[0]).write_text("\n".join([head, *layout(text)]) + "\n", encoding="utf-8")
        return 0
    made = cut(text, int(rest[0])) if what == "cut" else {"calls": calls, "metrics": metrics}[what](text)
    pathlib.Path(rest[-1]).write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
