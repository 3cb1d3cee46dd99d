# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver from Python: as much as tests/device/run needs to know a card, and to take memory on
it beside the engine. Run as a program it is the neighbour: it answers each line on standard input by one
of JSON. "take BYTES" takes so much in one piece, if the driver gives it; "give" gives all of it back.
"""
import ctypes
import json
import sys

COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class DriverError(Exception):
    """A call that failed; the text says which, and how."""


class Card:
    """The first card of a driver; OSError where there is no libcuda."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.held = []
        self.device = ctypes.c_int()
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise DriverError("the CUDA driver has no device")
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)

    def call(self, name, *args):
        if not hasattr(self.lib, name):
            raise DriverError(f"libcuda has no {name}")
        status = getattr(self.lib, name)(*args)
        if status != 0:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(status, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({status})")

    def name(self):
        text = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", text, 128, self.device)
        return text.value.decode()

    def arch(self):
        """"sm_90a": what nvcc compiles for this card's own instructions."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(major), COMPUTE_MAJOR, self.device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), COMPUTE_MINOR, self.device)
        return f"sm_{major.value}{minor.value}{'a' if major.value >= 9 else ''}"

    def open(self):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def take(self, size):
        address = ctypes.c_uint64()
        if self.lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) != 0:
            return False
        self.held.append((address, size))
        return True

    def give(self):
        for address, _ in self.held:
            self.call("cuMemFree_v2", address)
        self.held = []


def main():
    card = Card()
    card.open()
    for line in sys.stdin:
        words = line.split()
        taken = None
        if words[:1] == ["take"]:
            taken = card.take(int(words[1]))
        elif words[:1] == ["give"]:
            card.give()
        free, total = card.memory()
        print(json.dumps({"taken": taken, "held": sum(size for _, size in card.held), "free": free,
                          "total": total}), flush=True)
    card.give()
    return 0


if __name__ == "__main__":
    sys.exit(main())
