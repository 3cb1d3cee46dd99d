# SPDX-License-Identifier: Apache-2.0
"""Proved plans kept in a folder: the second start takes the first one's, another build, model or set
of options does not, and nothing that lies in the folder stops a start."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import harness
from harness import Server, case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models"
HELD = "the plan of an earlier start holds"


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
def the_folder_of_the_user_is_the_default():
    with tempfile.TemporaryDirectory() as top:
        env = {"XDG_CACHE_HOME": top}
        run(None, env=env)
        check(HELD in run(None, env=env), "it was not taken")
        only_file(pathlib.Path(top) / "plimsoll/plans")
        env = {"XDG_CACHE_HOME": "/dev/null/none"}
        check(HELD not in run(None, env=env), "there is no such folder")


main()
