# SPDX-License-Identifier: Apache-2.0
"""The fault table: the real server on the fake driver of a backend, a fault at each place, and what became
of it. The table is printed at the end; README.md keeps it."""
import os
import pathlib
import struct
import tempfile

from faulty import BACKEND, FaultyServer, need_fake
import harness
from fault_table import FaultTable
from harness import case, check, main, wait_until

# HIP's context is the process's, and stays.
table = FaultTable(FaultyServer, kinds=("contexts", "streams", "events") if BACKEND == "cuda" else ("streams", "events"))
row, start, serve = table.row, table.start, table.serve

CARD = "device size=512MiB"
CUDA = BACKEND == "cuda"
LIBRARY = "libcuda.so.1" if CUDA else "libamdhip64.so"


# ---- at the start ----

def start_with(fault, folder, *words):
    """A start where another library than the fake is found first, or none; it must fail with these words."""
    server = FaultyServer(wait=False, env={"LD_LIBRARY_PATH": folder})
    try:
        wait_until(lambda: server.process.poll() is not None, "an end", 60)
        row(fault, "open", "fails: " + table.refused(server, words))
    finally:
        server.close()


@case
def drivers_that_can_not_be_used():
    start_with("no driver", "/nonexistent", LIBRARY)
    wrong = pathlib.Path(os.environ["LD_LIBRARY_PATH"].split(":")[0]).parent / "wrong"
    check(wrong.is_dir(), wrong)
    start_with("a library of that name without the entry points", str(wrong), "has no")
    start("no device", "open", "count 0", "no card")
    if CUDA:
        start("an older driver", "open", "identity driver=12040", "too old", "12.4")
        start("a card too old", "open", "identity arch=7.5 name=Old_Card", "Old Card", "7.5")
        start("a card that nobody may open", "open", "identity mode=2", "PROHIBITED")
        start("memory that may move to the host (WSL)", "open", "identity managed=0", "spill=on")
    else:
        start("an older driver", "open", "identity driver=40300000", "too old", "4.3")
        start("a card without code for it", "open", "identity arch=gfx803 name=Old_Card", "Old Card", "gfx803")
    start("an unknown error", "init", "fail init unknown times=all", BACKEND)
    start("out of memory", "context", "fail context oom",
          "CUDA_ERROR_OUT_OF_MEMORY" if CUDA else "hipErrorOutOfMemory")


# ---- device code: the program's own, edited in a copy of it ----

MAGIC = b"\x50\xed\x55\xba" if CUDA else b"__CLANG_OFFLOAD_BUNDLE__"
ENTRY = struct.Struct("<HHIQ")  # of a fat binary: kind, version, bytes of the header, bytes of the code


def spoilt(data, at):
    data[at:at + 4] = bytes(4)


def of_another_architecture(data, at):
    if not CUDA:
        data[at:at + 4096] = data[at:at + 4096].replace(b"--gfx", b"--xfg")  # in the bundle's header
        return
    end = at + 16 + struct.unpack_from("<Q", data, at + 8)[0]
    at += 16
    while at < end:
        _, _, header, code = ENTRY.unpack_from(data, at)
        struct.pack_into("<I", data, at + 28, 200)
        at += header + code


def start_edited(fault, edit, *words):
    with tempfile.TemporaryDirectory() as folder:
        data, binary, at, n = bytearray(pathlib.Path(harness.BINARY).read_bytes()), pathlib.Path(folder, "plimsoll"), -1, 0
        while (at := data.find(MAGIC, at + 1)) >= 0:
            edit(data, at)
            n += 1
        check(n > 5, f"{n} images")
        binary.write_bytes(data)
        binary.chmod(0o755)
        start(fault, "module", "", *words, binary=str(binary))


@case
def images_that_are_not_what_they_should_be():
    start_edited("a corrupt embedded object", spoilt, "corrupt")
    start_edited("an embedded object for another architecture", of_another_architecture, "no code")


@case
def images_that_can_not_be_used():
    start("a corrupt image", "module", "fail module bad-image nth=2", "corrupt")
    start("no code for this card", "module", "fail module no-image nth=2", "no code")
    start("a kernel that is not in its image", "function", "fail function not-found times=all", "plm_")
    start("out of memory", "module", "fail module oom nth=2", "room")


@case
def no_room_at_the_start():
    start("8 MiB free of 512", "foresight", f"{CARD} neighbour=440MiB", "missing", "MiB")
    start("out of memory", "pinned host memory", "fail host-alloc oom", "pinned memory")
    start("out of memory", "pinned host memory of the workspace", "fail host-alloc oom nth=3 times=all", "host memory")
    start("out of memory", "stream", "fail stream oom", "stream")
    # In the warm-up the start fails and names the kernel; in the proof it goes on.
    start("out of memory", "launch 5", "fail launch oom nth=5", "kernel", "memory")
    start("lost", "launch 5", "fail launch lost nth=5", "kernel", "lost")
    start("out of memory", "launch 400", "fail launch oom nth=400", "memory", either=True)
    start("lost", "launch 400", "fail launch lost nth=400", "lost", either=True)
    start("out of memory", "instantiate", "fail instantiate oom", "memory", either=True)
    start("not supported", "capture", "fail capture not-supported", "graph", either=True)


def names_memory():
    """The last row's start went well, or says that it was memory."""
    outcome = table.rows[-1][2]
    check(outcome.startswith("starts") or any(word in outcome for word in ("memory", "room", "the weights take")),
          table.rows[-1])


@case
def each_allocation_of_the_start_fails_once():
    for place in ("alloc", "create", "map") if CUDA else ("alloc",):
        nth = 1
        while start("out of memory once", f"{place} {nth}", f"{CARD}; fail {place} oom nth={nth}", "m",
                    either=True):
            names_memory()
            nth += 1
        check(nth > 1, f"the start took no {place}")


@case
def a_card_that_another_process_fills_during_the_start():
    # From the n-th allocation on there is no room.
    for nth in (1, 2, 3, 4, 6, 8):
        start("no room from here on", f"alloc {nth}", f"{CARD}; fail alloc oom nth={nth} times=all; "
              f"fail create oom nth={nth} times=all", "m", either=True)
        names_memory()


# ---- while it serves ----

@case
def work_without_room():
    serve("out of memory once", "launch", "fail launch oom")
    serve("out of memory 5 times", "launch or graph", "fail work oom times=5")
    if CUDA:  # HIP's lists go kernel by kernel
        serve("out of memory once", "graph", "fail graph oom")
    serve("out of memory once", "event", "fail event oom")
    serve("out of memory once", "copy", "fail copy oom")


@case
def a_device_that_is_lost():
    lost = ("device_losses_total", "device_reopened_total")
    serve("illegal address", "launch", "fail launch lost", *lost)
    if CUDA:
        serve("illegal address", "graph", "fail graph lost", *lost)
    serve("launch timeout", "launch or graph", "fail work launch-timeout", *lost)
    serve("launch failed", "launch or graph", "fail work launch-failed", *lost)
    serve("ECC error", "launch or graph", "fail work ecc", *lost)
    serve("an unknown error", "launch or graph", "fail work unknown", *lost)
    serve("illegal address", "event", "fail event lost", *lost)
    serve("illegal address", "wait", "fail wait lost nth=3", *lost)
    serve("illegal address", "copy", "fail copy lost", *lost)
    serve("illegal address, and again on its way back", "launch",
          "fail work lost; fail launch lost nth=20", *lost)


@case
def a_device_that_comes_back_late():
    lost = ("device_losses_total", "device_reopened_total")
    serve("lost, and gone for 1 s", "reopen", "fail work lost then=gone then-ms=1000", *lost)
    serve("lost, and broken for 1 s", "reopen", "fail work lost then=broken then-ms=1000", *lost)
    serve("lost, another answers for 1 s", "reopen", "fail work lost then=other then-ms=1000", *lost)
    serve("lost, no room for a module at first", "reopen", "fail work lost; fail module oom nth=3", *lost)
    serve("lost, no room for a slab at first", "reopen", "fail work lost; fail alloc oom nth=2", *lost)
    if CUDA:
        serve("lost, no room for a graph at first", "reopen", "fail work lost; fail instantiate oom", *lost)


@case
def a_step_that_hangs():
    # Longer than any step on a machine that is busy; a hang is told after twice that.
    watchdog = ("--watchdog-ms", "2500")
    serve("a step hangs for 8 s", "launch or graph", "fail work hang ms=8000", "device_losses_total",
          "device_reopened_total", args=watchdog)
    serve("a step is late by 300 ms", "launch or graph", "fail work hang ms=300", args=watchdog)


@case
def a_device_that_does_not_come_back():
    table.never_back("reopen", "fail work lost then=gone")


@case
def a_device_that_is_lost_again_and_again():
    table.three_losses("lost three times in a row", "serving", "fail work lost")


@case
def a_card_that_is_shared():
    table.neighbour(CARD, f"{CARD} neighbour=440MiB")
    table.lies("the reading", CARD, "reading")


need_fake()
try:
    main()
finally:
    table.show()
