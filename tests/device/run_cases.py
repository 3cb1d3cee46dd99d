# SPDX-License-Identifier: Apache-2.0
"""How tests/device/run goes on: parts that fail, hang or raise, time that runs out, a driver that loads and
fails. Nothing is built: `run_cases.py FOLDER` with the folder of the fake drivers."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from harness import case, check, main, same, wait_until  # noqa: E402

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("device_run", str(HERE / "run"))
device_run = importlib.util.module_from_spec(importlib.util.spec_from_loader("device_run", loader))
loader.exec_module(device_run)


def outcomes(run):
    return [(part["name"], part["outcome"]) for part in run.result["parts"]]


@case
def one_part_costs_the_others_nothing():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OUT"] = folder
        run = device_run.Run(60, pathlib.Path(folder))
        marks = pathlib.Path(folder, "grandchild")

        def crowd(run):
            run.call(["sh", "-c", f"(sleep 60; true) & echo $! > {marks}; wait"])

        def talk(run):
            with device_run.drills.running(run, "sh", "-c", "read line; sleep 60") as program:
                program.ask("hello")

        parts = [("good", lambda run: "fine"), ("bad", lambda run: run.call(["false"])), ("odd", lambda run: 1 / 0),
                 ("absent", lambda run: run.call(["/nonexistent/program"])), ("crowd", crowd), ("talk", talk),
                 ("last", lambda run: run.call(["true"]) and "")]
        before = time.monotonic()
        for name, function in parts:
            same(run.part(name, 0, 0.5, function), name in ("good", "last"))
            written = json.loads(pathlib.Path(folder, "device-run.json").read_text())
            same(written["parts"][-1]["name"], name)
        check(time.monotonic() - before < 10, "a part that hangs was not stopped")
        same(outcomes(run), [(name, "ok" if name in ("good", "last") else "FAILED") for name, _ in parts])
        check("ZeroDivisionError" in run.result["parts"][2]["note"], run.result)
        grandchild = pathlib.Path("/proc", marks.read_text().strip())
        wait_until(lambda: not grandchild.exists(), "what a part started ends with it", 5)


@case
def what_no_time_is_left_for_is_cut():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OUT"] = folder
        run = device_run.Run(0.5, pathlib.Path(folder))
        run.part("long", 0, 100, lambda run: run.call(["sleep", "60"]))
        run.part("later", 5, 100, lambda run: run.call(["true"]))
        same(outcomes(run), [("long", "cut"), ("later", "cut")])


def start(folder, rules=""):
    """The whole program where a driver is found that can not be used: it ends before anything is built."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([sys.executable, HERE / "run", "--build", pathlib.Path(out, "build")], capture_output=True,
                              text=True, timeout=60,
                              env={**os.environ, "OUT": out, "LD_LIBRARY_PATH": str(folder), "PLM_FAKE_GPU": rules})
        return done, json.loads(pathlib.Path(out, "device-run.json").read_text())


@case
def a_driver_that_loads_and_fails_is_an_error():
    for folder, rules, word in (("cuda", "fail init unknown times=all", "CUDA_ERROR_UNKNOWN"),
                                ("cuda", "count 0", "CUDA_ERROR_NO_DEVICE"), ("wrong", "", "has no cuInit")):
        done, result = start(FAKES / folder, rules)
        same(done.returncode, 1)
        same([(p["name"], p["outcome"]) for p in result["parts"]], [("card", "FAILED")])
        check(word in result["parts"][0]["note"] and result["device"] is None, result)
        check("FAKE DRIVER" not in done.stdout and "device: none" in done.stdout, done.stdout)


FAKES = pathlib.Path(sys.argv[1])
main()
