# SPDX-License-Identifier: Apache-2.0
"""Proved plans kept in a folder: the second start takes the first one's, another build, model or set
of options does not, and nothing that lies in the folder stops a start."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import harness
from cgroup import Group, NoGroup
from harness import Server, case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models"
MIB = 1 << 20
# One with a KV cache of some size, for starts in which it does not fit whole; else the tiny one.
LARGER = pathlib.Path(os.environ.get("PLIMSOLL_TEST_MODELS", ".")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
HELD = "what an earlier start measured holds"


def run(folder, *args, model="llama-tied-q4_0.gguf", env=None):
    """What a start says, after one token."""
    cache = ["--plan-cache", str(folder)] if folder else []
    done = subprocess.run([harness.BINARY, "run", "-m", str(TINY / model), "-p", "hi", "-n", "1", "-v",
                           *harness.on_device(), *cache, *args], capture_output=True, timeout=120,
                          env={**os.environ, **(env or {})})
    err = done.stderr.decode()
    check(done.returncode == 0, err)
    return err


def files_of(folder, kind):
    return list(pathlib.Path(folder).glob(f"*.{kind}.json"))


def only_file(folder, kind="plan"):
    files = files_of(folder, kind)
    same(len(files), 1)
    return files[0]


def autotuned(text):
    """How many ops were tuned, and how many of them were timed for it."""
    found = re.search(r"autotune: (\d+) ops, (\d+) of them timed", text)
    check(found is not None, text)
    return int(found.group(1)), int(found.group(2))


@case
def the_second_start_takes_the_plan_of_the_first():
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top) / "a/b"  # is made
        check(HELD not in run(folder), "nothing was there")
        file = only_file(folder)
        text = file.read_text()
        same(os.stat(folder).st_mode & 0o777, 0o700)
        check(HELD in run(folder), "it was not taken")
        same(file.read_text(), text)
        # Other options have their own.
        check(HELD not in run(folder, "-c", "128"), "of other options")
        same(len(files_of(folder, "plan")), 2)
        check(HELD not in run(folder, "--no-plan-cache"), "it was taken")


@case
def the_server_takes_it_too():
    with tempfile.TemporaryDirectory() as folder:
        args = ["-v", "--plan-cache", folder]
        model = str(TINY / "llama-tied-q4_0.gguf")
        with Server(*args, model=model) as server:
            check(HELD not in server.text(), server.text())
        with Server(*args, model=model) as server:
            check(HELD in server.text(), server.text())
            same(server.memory()["sealed"], True)


# What a plan decides, and by what; readings move from start to start.
DECIDED = ("max_context", "max_sequences", "batch_max_tokens", "blocks", "blocks_bind", "room_binds", "margin",
           "kv_bytes", "slab_blocks", "line")


def planned(folder, *args, prefix=()):
    """(what a server's plan decides, whether it came from what an earlier start measured)."""
    model = LARGER if LARGER.exists() else TINY / "llama-tied-q4_0.gguf"
    cache = ["--plan-cache", str(folder)] if folder else ["--no-plan-cache"]
    with Server("-v", "--autotune", "off", "-b", "64", "--parallel", "2", *cache, *args, model=str(model),
                prefix=prefix) as server:
        plan = server.memory()["devices"][0]["plan"]
        return {name: plan[name] for name in DECIDED}, HELD in server.text()


def like_cold(folder, *args, prefix=(), near=False):
    """The same start with the folder and without it: the plans are equal. near: the budget binds, and the reading
    of the host, which it is made of, moves by two of the 16 MiB in which memory is taken."""
    warm, held = planned(folder, *args, prefix=prefix)
    cold, _ = planned(None, *args, prefix=prefix)
    seen = dict(warm)
    if near:
        check(abs(warm["line"] - cold["line"]) <= 32 * MIB, f"warm {warm}, cold {cold}")
        for name in ("blocks", "kv_bytes", "line", "margin", "slab_blocks", "max_context"):
            seen[name] = cold[name]
    same(seen, cold)
    return warm, held


@case
def tight_roomy_and_tight_starts_have_the_plans_of_cold_ones():
    tight = ("--max-total-tokens", "1024", "-c", "512"), ("--memory-limit", "600MiB"), ("--no-prefix-cache",)
    for args in tight:
        with tempfile.TemporaryDirectory() as folder:
            roomy = args[2:] if args[0].startswith("--max") else ()
            first, _ = like_cold(folder, *args)
            wide, held = like_cold(folder, *roomy)
            check(wide["blocks"] >= first["blocks"], (wide, first))
            # The stress of a pinned size measures less: it has a file of its own.
            same(held, not args[0].startswith("--max"))
            again, held = like_cold(folder, *args)
            same((again, held), (first, True))
            same(len(files_of(folder, "plan")), 1 + args[0].startswith("--max"))


@case
def a_tight_control_group_is_not_for_ever():
    if not LARGER.exists():
        print("      no model with a KV cache of some size")
        return
    try:
        with Group(350 * MIB) as group, tempfile.TemporaryDirectory() as folder:
            first, held = like_cold(folder, prefix=group.prefix, near=True)
            same((first["room_binds"], held), ("cgroup", False))
            wide, held = like_cold(folder)
            check(not held and wide["max_context"] > first["max_context"], (first, wide))
            again, held = like_cold(folder, prefix=group.prefix, near=True)
            same((again["room_binds"], held), ("cgroup", True))
            same(like_cold(folder), (wide, True))
            print(f"      context in the group {first['max_context']}, outside {wide['max_context']}, in it again "
                  f"{again['max_context']}")
    except NoGroup as reason:
        print(f"      no memory control group can be made: {reason}")


@case
def old_files_go_by_age_and_number():
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top)
        now = time.time()
        for i in range(140):
            file = folder / f"old-{i:016x}.plan.json"
            file.write_text("{}")
            os.utime(file, (now - 1000 + i, now - 1000 + i))
        aged = [folder / f"aged-{1:016x}.tuning.json", folder / f"cut-{2:016x}.plan.json.part-aB3dEf"]
        theirs = [folder / "notes.json", folder / "thesis.plan.json", folder / f"x-{3:016x}.txt"]
        for file in aged + theirs:
            file.write_text("{}")
            os.utime(file, (1, 1))
        (folder / f"link-{4:016x}.plan.json").symlink_to(theirs[0])
        run(folder)
        check(not any(file.exists() for file in aged), "they are old")
        check(all(file.exists() for file in theirs), "they are nobody's business")
        left = sorted(file.name for file in files_of(folder, "plan") if file.name.startswith("old-"))
        same(len(left), 126)  # and the two of this start
        same(left[0], f"old-{14:016x}.plan.json")
        # A start that takes a file makes it young again.
        file, = [file for file in files_of(folder, "plan") if file.name.startswith("llama")]
        os.utime(file, (1, 1))
        check(HELD in run(folder), "it was not taken")
        check(file.stat().st_mtime > now - 100, "it has its old age")


@case
def what_is_written_is_the_users_alone_and_follows_no_link():
    with tempfile.TemporaryDirectory() as folder:
        old = os.umask(0)
        try:
            run(folder)
        finally:
            os.umask(old)
        file = only_file(folder)
        same(file.stat().st_mode & 0o777, 0o600)
        # What another put there: at the name, and at names that a writer might take on the way.
        precious = pathlib.Path(folder) / "precious"
        precious.write_text("mine")
        for name in (file.name, file.name + ".part"):
            path = file.parent / name
            path.unlink(missing_ok=True)
            path.symlink_to(precious)
        run(folder)
        same(precious.read_text(), "mine")
        out = pathlib.Path(folder) / "out.json"
        out.symlink_to(precious)
        model = str(TINY / "llama-tied-q4_0.gguf")
        done = subprocess.run([harness.BINARY, "plan", "-m", model, *harness.on_device(), "--plan-out", str(out)],
                              capture_output=True, timeout=120)
        same(done.returncode, 0)
        same((precious.read_text(), out.is_symlink(), out.stat().st_mode & 0o777), ("mine", False, 0o600))
        same(json.loads(out.read_text())["object"], "plan")


@case
def what_another_build_wrote_is_refused_with_the_reason():
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        file = only_file(folder)
        text = file.read_text()
        other = {"model": "llama-tied-q4_1.gguf"}
        with tempfile.TemporaryDirectory() as second:
            run(second, **other)
            file.write_text(only_file(second).read_text())  # of another model
        err = run(folder)
        check("another model_bytes wrote it" in err or "another model_header wrote it" in err, err)
        same(file.read_text().partition('"plan"')[0], text.partition('"plan"')[0])
        check(HELD in run(folder), "it was written anew")


@case
def nothing_in_the_folder_stops_a_start():
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        file = only_file(folder)
        text = file.read_bytes()
        for bad in (b"", b"{", text[:-5], text[:100] + b"9" + text[101:], b"\0" * 100, b"[" * 1000,
                    b"x" * 2000000):
            file.write_bytes(bad)
            check(HELD not in run(folder), bad[:20])
            check(HELD in run(folder), "it was written anew")
        file.unlink()
        os.mkfifo(file)
        check(HELD not in run(folder), "a pipe")
        file.unlink()
        file.mkdir()
        run(folder)


@case
def tuning_results_are_kept_beside_it():
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        # A busy machine may not time all within its budget; what it did is not timed again.
        known = len(json.loads(only_file(folder, "tuning").read_text())["choices"])
        ops, timed = autotuned(run(folder))
        check(ops - timed == known, f"{ops} ops, {timed} timed, {known} were known")
        for bad in (b"{", b"x" * 2000000, only_file(folder).read_bytes()):
            only_file(folder, "tuning").write_bytes(bad)
            ops, timed = autotuned(run(folder))
            same(ops, timed)
            same(json.loads(only_file(folder, "tuning").read_text())["object"], "tuning")
        check("autotune" not in run(folder, "--autotune", "off"), "it was tuned")


@case
def what_a_start_chose_by_itself_is_said():
    line = re.compile(r"^plimsoll run: by default: at most (\d+) MiB of KV cache, a quarter of what is free "
                      r"\(--max-total-tokens, --memory-limit\)$", re.M)
    found = line.findall(run(None, "--no-plan-cache"))
    check(len(found) == 1 and int(found[0]) % 64 == 0 or int(found[0]) < 64, found)
    check("by default" not in run(None, "--no-plan-cache", "--memory-limit", "1GiB"), "a limit was given")


@case
def the_folder_of_the_user_is_the_default():
    with tempfile.TemporaryDirectory() as top:
        env = {"XDG_CACHE_HOME": top}
        run(None, env=env)
        check(HELD in run(None, env=env), "it was not taken")
        only_file(pathlib.Path(top) / "plimsoll/plans")
        env = {"XDG_CACHE_HOME": "/dev/null/none"}
        check(HELD not in run(None, env=env), "there is no such folder")


main()
