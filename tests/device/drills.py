# SPDX-License-Identifier: Apache-2.0
"""The drills of tests/device/run: a device without room, and an engine that serves while a neighbour takes
memory and gives it back.
"""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import measure
from outcome import Failed, end_group

MIB = 1 << 20
PIECE = 64 * MIB   # that the neighbour takes at once
WANT = 2048 * MIB  # that it takes in all: more than margin and what is unused
PATIENCE = 20.0    # seconds for the engine to follow


class Lines:
    """A program that answers each line on standard input by one of JSON; it lives as long as the part may take."""

    def __init__(self, run, command):
        self.run, self.log = run, tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen([str(word) for word in command], env=run.env, text=True, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)
        self.timer = threading.Timer(max(0, run.left()), end_group, [self.child])
        self.timer.start()

    def ended(self):
        if self.run.left() <= 0:
            return self.run.late(str(self.child.args[0]))
        self.log.seek(0)
        return Failed(f"{self.child.args[0]} ended with {self.child.wait()}: {self.log.read().strip()[-500:]}")

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise self.ended()
        return json.loads(line)

    def ask(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None
        return self.read()

    def end(self):
        self.child.stdin.close()
        if self.child.wait() != 0:
            raise self.ended()


@contextlib.contextmanager
def running(run, *command):
    program = Lines(run, command)
    try:
        yield program
        program.end()
    finally:
        program.timer.cancel()
        end_group(program.child)
        program.log.close()


def neighbour(run):
    return running(run, sys.executable, pathlib.Path(__file__).with_name("card.py"))


def must(condition, text):
    if not condition:
        raise Failed(text)


def served(engine, n, want=None):
    answer = engine.ask(f"serve {n}")
    must(answer["well"] == n, f"{answer['well']} of {n} requests ended well")
    must(want in (None, answer["digest"]), f"the same requests got other tokens: {answer['digest']}, not {want}")
    return answer["digest"]


def must_be_sound(state):
    must(state["ready"] and state["losses"] == 0 and state["allocations_in_step"] == 0 and state["stalls"] == 0,
         f"the engine is not well: {state}")


# ---- out of memory ----

def full(run, device):
    """The device is filled with slabs; the limit is of fake ones, whose memory is the machine's."""
    done = run.call([run.program("tests/device/full"), device, *(["256"] if run.fake else [])])
    said = json.loads(done.stdout)
    return f"{said['bytes'] / 2**30:.2f} GiB in {said['slabs']} slabs, then OUT_OF_DEVICE as a value; all came back"


def start_full(run, device):
    """A start beside a neighbour that holds nearly all: it must fail with words, and leave the card as it was."""
    model = measure.make_model(run, measure.LARGE[0])
    with neighbour(run) as other:
        free = other.ask("state")["free"]
        must(other.ask(f"take {free - 1024 * MIB}")["taken"], "the neighbour could not take what is free")
        done = run.call([run.program("tools/plimsoll"), "plan", "-m", model, "--device", device], good=(0, 1))
        must(done.returncode == 1 and "does not fit" in done.stderr, f"status {done.returncode}: {done.stderr}")
        other.ask("give")
        lacking = free - other.ask("state")["free"]
        must(lacking < 64 * MIB, f"{lacking} bytes did not come back after the failed start")
    return done.stderr.strip().splitlines()[-1][:160]


# ---- the loop ----

def loop_alone(run, device):
    """Without a card nobody else is on the device."""
    model = measure.make_model(run, measure.TINY[0])
    with running(run, run.program("tests/device/loop"), device, model, 128) as engine:
        must_be_sound(engine.read())
        digest = served(engine, 2)
        served(engine, 2, digest)
        must_be_sound(engine.ask("state"))
    return "the fake driver is within the process: no neighbour"


def wait_for(engine, what, holds):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        state = engine.ask("state")
        if holds(state):
            return state
        time.sleep(0.05)
    raise Failed(f"after {PATIENCE:.0f} s {what}: {state}")


def note_use(run, ready):
    """How much of the card an engine leaves that may have all of it."""
    total = run.result["device"]["bytes"]
    free = total - ready["used_bytes"] - ready["foreign_bytes"]
    run.result["use"] = {"total_bytes": total, "used_bytes": ready["used_bytes"], "margin_bytes": ready["margin_bytes"],
                         "free_bytes": free, "free_percent": 100 * free / total}


def loop_beside(run, device):
    """The engine serves the same requests alone, while a neighbour takes memory, and after it gave it back."""
    model = measure.make_model(run, measure.LARGE[0])
    with running(run, run.program("tests/device/loop"), device, model, 16384, 64) as engine:
        ready = engine.read()
        must_be_sound(ready)
        note_use(run, ready)
        digest = served(engine, 32)
        with neighbour(run) as other:
            until = time.monotonic() + PATIENCE
            held = 0
            while held < WANT and time.monotonic() < until:
                answer = other.ask(f"take {PIECE}")
                held = answer["held"]
                if not answer["taken"]:
                    served(engine, 8)
            small = wait_for(engine, "the KV cache is as large as before", lambda s: s["shrinks"] > ready["shrinks"])
            served(engine, 32, digest)
            must_be_sound(engine.ask("state"))
            other.ask("give")
            back = wait_for(engine, "the KV cache has not grown again", lambda s: s["grows"] > ready["grows"])
        served(engine, 32, digest)
        must_be_sound(engine.ask("state"))
    return (f"{ready['blocks']} blocks, {small['blocks']} beside {held / 2**30:.1f} GiB of a neighbour, {back['blocks']} "
            f"after it; all requests the same")
