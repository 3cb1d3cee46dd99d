# SPDX-License-Identifier: Apache-2.0
"""The fault table: the real server on Vulkan, a fault at each place, and what became of it. Each row has
an outcome that is checked: the start fails with words that name what is wrong, or every request is
answered with the text of an undisturbed run. The table is printed at the end; README.md keeps it."""
from faulty import DISCRETE, FaultyServer, need_vulkan
from fault_table import FaultTable
from harness import case, check, main

table = FaultTable(FaultyServer, undisturbed={"layers": ""},
                   kinds=("instances", "devices", "buffers", "pipelines", "command_pools", "semaphores"))
start, serve = table.start, table.serve


# ---- at the start ----

@case
def devices_that_can_not_be_used():
    start("driver of Vulkan 1.2", "open", "api 1.2", "1.3", "1.2")
    start("no shaderInt64", "open", "hide feature shaderInt64", "shaderInt64")
    start("no bufferDeviceAddress, no timelineSemaphore", "open",
          "hide feature bufferDeviceAddress; hide feature timelineSemaphore", "bufferDeviceAddress",
          "timelineSemaphore")
    start("no queue that computes", "open", "hide compute", "compute")
    start("no driver", "open", "fail instance no-driver times=all", "driver")
    start("no device", "open", "hide devices", "driver")


@case
def no_room_at_the_start():
    start("64 MiB free of 512", "foresight", f"{DISCRETE}; heap 0 neighbour=448MiB", "missing", "64MiB")
    start("a device of 64 MiB", "foresight", "heap 0 size=64MiB", "missing", "64MiB")
    start("no host memory", "instance", "fail instance oom-host times=all", "host memory")
    start("OUT_OF_DEVICE_MEMORY", "a kernel", f"{DISCRETE}; fail pipeline oom-device nth=5",
          "could not make the kernel")
    start("OUT_OF_DEVICE_MEMORY from here on", "allocation 6", f"{DISCRETE}; fail allocate oom-device nth=6 times=all",
          "memory")
    # In the warm-up the start fails and names the kernel; in the proof it goes on.
    start("OUT_OF_DEVICE_MEMORY", "submit 5", f"{DISCRETE}; fail submit oom-device nth=5", "kernel", "memory",
          either=True)
    start("DEVICE_LOST", "submit 5", f"{DISCRETE}; fail submit lost nth=5", "kernel", "lost", either=True)
    start("OUT_OF_DEVICE_MEMORY", "submit 60", f"{DISCRETE}; fail submit oom-device nth=60", "memory",
          either=True)
    start("DEVICE_LOST", "submit 60", f"{DISCRETE}; fail submit lost nth=60", "lost", either=True)


@case
def each_allocation_of_the_start_fails_once():
    # The rings, the weights, the warm-up's scratch, the workspace, the probe's pool, the KV cache, ballast.
    nth = 1
    while start("OUT_OF_DEVICE_MEMORY once", f"allocation {nth}",
                f"{DISCRETE}; fail allocate oom-device nth={nth}", "m", either=True):
        check(table.rows[-1][2].startswith("starts") or
              any(word in table.rows[-1][2] for word in ("memory", "room", "the weights take")), table.rows[-1])
        nth += 1
    check(nth > 6, f"the start took {nth} allocations")


# ---- while it serves ----

@case
def a_submit_without_room():
    # On a card it may be the submit of a copy that is refused: then the step is formed anew.
    for view, card, metrics in (("", "CPU", ("step_resubmits_total",)), (DISCRETE, "card", ())):
        serve("OUT_OF_DEVICE_MEMORY once", f"submit ({card})", "fail submit oom-device", *metrics, view=view)
        serve("OUT_OF_DEVICE_MEMORY 5 times", f"submit ({card})", "fail submit oom-device times=5",
              *metrics, view=view)
    serve("OUT_OF_HOST_MEMORY once", "submit", "fail submit oom-host", "step_resubmits_total")
    serve("OUT_OF_DEVICE_MEMORY once", "recording", "fail record oom-device", "step_resubmits_total")


@case
def a_device_that_is_lost():
    lost = ("device_losses_total", "device_reopened_total")
    serve("DEVICE_LOST", "submit (CPU)", "fail submit lost", *lost)
    serve("DEVICE_LOST", "submit (card)", "fail submit lost", *lost, view=DISCRETE)
    serve("DEVICE_LOST", "wait", "fail wait lost", *lost)
    serve("DEVICE_LOST, and again on its way back", "submit", "fail submit lost; fail submit lost nth=20",
          *lost)
    serve("an unknown error", "submit", "fail submit unknown", *lost)


@case
def a_device_that_comes_back_late():
    lost = ("device_losses_total", "device_reopened_total")
    serve("lost, and gone for 1 s", "submit", "fail submit lost then=gone then-ms=1000", *lost)
    serve("lost, and broken for 1 s", "submit", "fail submit lost then=broken then-ms=1000", *lost)
    serve("lost, another answers for 1 s", "submit", "fail submit lost then=other then-ms=1000", *lost)
    serve("lost, no room for a kernel at first", "reopen",
          "fail submit lost; fail pipeline oom-device nth=3", *lost)
    serve("lost, no room for a slab at first", "reopen",
          "fail submit lost; fail allocate oom-device nth=2", *lost)


@case
def a_step_that_hangs():
    # Longer than any step on a machine that is busy; a hang is told after twice that.
    watchdog = ("--watchdog-ms", "2500")
    serve("a step hangs for 8 s", "submit", "fail submit hang ms=8000", "device_losses_total",
          "device_reopened_total", args=watchdog)
    serve("a step is late by 300 ms", "submit", "fail submit hang ms=300", args=watchdog)


@case
def a_device_that_does_not_come_back():
    table.never_back("submit", "fail submit lost then=gone")


@case
def a_device_that_is_lost_again_and_again():
    table.three_losses("DEVICE_LOST, three times in a row", "submit", "fail submit lost")


@case
def a_budget_that_drops():
    table.neighbour(DISCRETE, "heap 0 neighbour=440MiB")
    table.lies("the budget", DISCRETE, "budget")


need_vulkan()
try:
    main()
finally:
    table.show()
