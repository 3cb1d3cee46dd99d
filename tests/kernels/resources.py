#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kernels ask of a card, read from their compiled images: registers, shared memory, local memory.

resources.py [--markdown] --archs ARCH,... --list PROGRAM IMAGE...

IMAGE: a fat binary of nvcc or a bundle of code objects of hipcc, as backends embed them; PROGRAM prints
the kernels that there must be (list.c). Prints a table and each breach; exit status 1 when there is one:
local memory or scratch, spilled registers, calls that device code must not make (printf, malloc,
assert), a kernel that an image of an architecture lacks, one for blocks of another size or with another
argument than the table says. No tools are needed: the formats are read here.
"""
import argparse
import dataclasses
import pathlib
import re
import struct
import subprocess
import sys

SHARED_BYTES = 48 * 1024  # of a block, static: what every card since sm_80 and gfx906 has
RESERVED_BYTES = 1024     # sm_90 and later: what the system keeps before them, not counted as theirs


@dataclasses.dataclass
class Kernel:
    arch: str
    name: str
    args_bytes: int
    threads: int = 0  # of the largest block; 0: not said
    registers: int = 0
    scalars: int = 0  # AMD: registers that a wave shares
    shared: int = 0
    local: int = 0    # bytes of a thread: arrays and spilled registers
    spills: int = 0
    calls: list = dataclasses.field(default_factory=list)
    compiled: bool = True  # PTX: by the driver, so that nothing is known of registers


# ---- ELF ----

class Elf:
    """A 64-bit little-endian ELF file: sections by name, symbols."""

    def __init__(self, blob):
        self.blob = blob
        at, = struct.unpack_from("<Q", blob, 40)
        size, n, names = struct.unpack_from("<HHH", blob, 58)
        rows = [struct.unpack_from("<IIQQQQII", blob, at + i * size) for i in range(n)]
        self.names = [self.text(rows[names][4] + row[0]) for row in rows]
        self.rows = rows

    def text(self, at):
        return self.blob[at:self.blob.index(b"\0", at)].decode()

    def sections(self, prefix):
        """(name, type, size, bytes) of those whose names begin so."""
        for name, (_, kind, _, _, at, size, _, _) in zip(self.names, self.rows):
            if name.startswith(prefix):
                yield name, kind, size, b"" if kind == 8 else self.blob[at:at + size]

    def symbols(self, table):
        """(name, index of the section) of the symbols of a table, in its order."""
        for name, (_, _, _, _, at, size, link, _) in zip(self.names, self.rows):
            if name == table:
                texts = self.rows[link][4]
                for i in range(0, size, 24):
                    name_at, _, _, section = struct.unpack_from("<IBBH", self.blob, at + i)
                    yield self.text(texts + name_at), section


def undefined(elf, table):
    return [name for name, section in elf.symbols(table)
            if section == 0 and name != "" and not name.startswith(".nv.reservedSmem")]


# ---- CUDA ----

# Attributes of .nv.info that are read here: the format of a record and its number. STACK is a kernel's
# frame, which spilled registers are part of, and those of the functions that it calls.
REGISTERS, STACK, PARAMETERS, MAX_THREADS = (4, 0x2F), (4, 0x12), (3, 0x19), (4, 0x05)


def nv_info(blob):
    """(format and number, payload or value) of each record."""
    at = 0
    while at + 4 <= len(blob):
        how, number, value = struct.unpack_from("<BBH", blob, at)
        at += 4
        if how == 4:
            yield (how, number), blob[at:at + value]
            at += value
        else:
            yield (how, number), value


def read_cubin(arch, blob):
    elf = Elf(blob)
    symbols = [name for name, _ in elf.symbols(".symtab")]
    calls = undefined(elf, ".symtab")
    kernels = {}
    for name, _, _, info in elf.sections(".nv.info."):
        k = Kernel(arch, name.removeprefix(".nv.info."), 0, calls=calls)
        for what, value in nv_info(info):
            if what == PARAMETERS:
                k.args_bytes = value
            elif what == MAX_THREADS:
                k.threads = struct.unpack("<III", value)[0]
        kernels[k.name] = k
    whole = next(info for name, _, _, info in elf.sections(".nv.info") if name == ".nv.info")
    for what, value in nv_info(whole):
        if what in (REGISTERS, STACK):
            symbol, n = struct.unpack("<II", value)
            k = kernels.get(symbols[symbol])
            if k is not None:  # else a function that a kernel calls
                k.registers, k.local = (n, k.local) if what == REGISTERS else (k.registers, n)
    shared = {name.removeprefix(".nv.shared."): size for name, _, size, _ in elf.sections(".nv.shared.")}
    reserved = RESERVED_BYTES if shared.pop("reserved.0", None) is not None else 0
    for name, size in shared.items():
        kernels[name].shared = size - reserved
    return list(kernels.values())


def read_ptx(arch, blob):
    text = blob.rstrip(b"\0").decode()
    calls = re.findall(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(\w+)", text)
    for entry in re.finditer(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{(.*?)\n\}", text, re.S):
        name, parameters, directives, body = entry.groups()
        size = sum(int(n) for n in re.findall(r"\.b8\s+\w+\[(\d+)\]", parameters))
        threads = re.search(r"\.maxntid\s+(\d+)", directives)
        local = sum(int(n) for n in re.findall(r"\.local\s.*?\[(\d+)\]", body))
        shared = sum(int(n) for n in re.findall(r"\.shared\s.*?\.b8\s+\w+\[(\d+)\]", body))
        yield Kernel(arch, name, size, int(threads.group(1)) if threads else 0, shared=shared,
                     local=local, calls=calls, compiled=False)


def read_fatbin(blob):
    """Entries of 1: PTX, 2: an ELF file; architectures with 'a' are marked by a flag."""
    at = struct.unpack_from("<H", blob, 6)[0]
    while at < len(blob):
        kind, _, head, size = struct.unpack_from("<HHIQ", blob, at)
        number, = struct.unpack_from("<I", blob, at + 28)
        flags, = struct.unpack_from("<Q", blob, at + 40)
        arch = f"{'compute' if kind == 1 else 'sm'}_{number}{'a' if flags >> 20 & 1 else ''}"
        body = blob[at + head:at + head + size]
        yield arch, list(read_ptx(arch, body) if kind == 1 else read_cubin(arch, body))
        at += head + size


# ---- HIP ----

def unpack(blob, at=0):
    """One value of MessagePack and where it ends: the kinds that code objects' metadata have."""
    first = blob[at]
    at += 1
    if first <= 0x7F:
        return first, at
    if first in (0xC2, 0xC3):
        return first == 0xC3, at
    if first in (0xCC, 0xCD, 0xCE, 0xCF):
        size = 1 << (first - 0xCC)
        return int.from_bytes(blob[at:at + size], "big"), at + size
    if 0xA0 <= first <= 0xBF or first in (0xD9, 0xDA):
        size, at = (first & 31, at) if first <= 0xBF else sized(blob, at, 1 << (first - 0xD9))
        return blob[at:at + size].decode(), at + size
    if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
        size, at = (first & 15, at) if first <= 0x9F else sized(blob, at, 2 << (first - 0xDC))
        ret = []
        for _ in range(size):
            value, at = unpack(blob, at)
            ret.append(value)
        return ret, at
    if 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        size, at = (first & 15, at) if first <= 0x8F else sized(blob, at, 2 << (first - 0xDE))
        ret = {}
        for _ in range(size):
            key, at = unpack(blob, at)
            ret[key], at = unpack(blob, at)
        return ret, at
    sys.exit(f"metadata with a value of kind {first:#x}")


def sized(blob, at, size):
    return int.from_bytes(blob[at:at + size], "big"), at + size


METADATA = 32  # NT_AMDGPU_METADATA


def read_code_object(arch, blob):
    elf = Elf(blob)
    calls = undefined(elf, ".dynsym")
    for _, _, _, note in elf.sections(".note"):
        name_bytes, bytes_, kind = struct.unpack_from("<III", note)
        if kind != METADATA:
            continue
        at = 12 + (name_bytes + 3) // 4 * 4
        for k in unpack(note[at:at + bytes_])[0]["amdhsa.kernels"]:
            args = [a for a in k[".args"] if not a[".value_kind"].startswith("hidden_")]
            asked = [a[".value_kind"] for a in k[".args"]]
            kernel = Kernel(arch, k[".name"], sum(a[".size"] for a in args),
                            threads=k[".max_flat_workgroup_size"],
                            registers=k[".vgpr_count"],  # accumulators among them
                            scalars=k[".sgpr_count"], shared=k[".group_segment_fixed_size"],
                            local=k[".private_segment_fixed_size"],
                            spills=k[".vgpr_spill_count"] + k[".sgpr_spill_count"], calls=list(calls))
            kernel.calls += [a for a in ("hidden_hostcall_buffer", "hidden_heap_v1") if a in asked]
            if k.get(".uses_dynamic_stack"):
                kernel.calls.append("a stack of unknown size")
            yield kernel


def read_bundle(blob):
    n, = struct.unpack_from("<Q", blob, 24)
    at = 32
    for _ in range(n):
        offset, size, name_bytes = struct.unpack_from("<QQQ", blob, at)
        target = blob[at + 24:at + 24 + name_bytes].decode()
        at += 24 + name_bytes
        if size > 0 and not target.startswith("host"):
            arch = target.split("--")[-1]
            yield arch, list(read_code_object(arch, blob[offset:offset + size]))


def read_image(path):
    blob = pathlib.Path(path).read_bytes()
    if blob.startswith(bytes.fromhex("50ed55ba")):
        return list(read_fatbin(blob))
    if blob.startswith(b"__CLANG_OFFLOAD_BUNDLE__"):
        return list(read_bundle(blob))
    sys.exit(f"{path}: neither a fat binary nor a bundle of code objects")


# ---- the gate ----

def breaches_of(k, listed):
    if k.local > 0:
        yield f"{k.local} bytes of local memory a thread: an array that is not in registers, or spills"
    if k.spills > 0:
        yield f"{k.spills} registers spilled"
    if k.shared > SHARED_BYTES:
        yield f"{k.shared} bytes of shared memory, more than {SHARED_BYTES}"
    for call in k.calls:
        yield f"uses {call}, which kernels must not"
    if k.name not in listed:
        yield "is not in kernels/kernels.def"
        return
    threads, args_bytes = listed[k.name]
    if k.threads != threads:
        yield f"is compiled for blocks of {k.threads or 'any number of'} threads, and run in {threads}"
    if k.args_bytes != args_bytes:
        yield f"has an argument of {k.args_bytes} bytes, and is given {args_bytes}"


def table(kernels, markdown):
    head = ["kernel", "arch", "threads", "registers", "scalar", "shared", "local", "spills"]
    rows = []
    for k in kernels:
        known = [k.registers, k.scalars or "-", k.shared, k.local, k.spills]
        rows.append([k.name, k.arch, k.threads] + (known if k.compiled else ["-", "-", k.shared, k.local, "-"]))
    rows = [[str(cell) for cell in row] for row in [head] + rows]
    if markdown:
        rows.insert(1, ["---"] * 2 + ["---:"] * (len(head) - 2))
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))) for row in rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--archs", required=True)
    parser.add_argument("--list", required=True)
    parser.add_argument("images", nargs="+")
    options = parser.parse_args()
    lines = subprocess.run([options.list], check=True, capture_output=True, text=True).stdout.split("\n")
    listed = {name: (int(threads), int(size)) for name, threads, size in (l.split() for l in lines if l)}
    kernels, breaches = [], []
    found = {arch: set() for arch in options.archs.split(",")}
    for path in options.images:
        name = pathlib.Path(path).name
        image = read_image(path)
        for arch in set(found) - {arch for arch, _ in image}:
            breaches.append(f"{name}: has nothing for {arch}")
        for arch, of_arch in image:
            kernels += of_arch
            found.setdefault(arch, set()).update(k.name for k in of_arch)
            breaches += [f"{k.name} ({arch}) {what}" for k in of_arch for what in breaches_of(k, listed)]
    for arch, names in sorted(found.items()):
        breaches += [f"{name} ({arch}) is in kernels/kernels.def, and in no image"
                     for name in sorted(set(listed) - names)]
    print(table(sorted(kernels, key=lambda k: (k.name, k.arch)), options.markdown))
    print("\n".join(["", *breaches]) if breaches else f"\n{len(kernels)} kernels keep the rules")
    return 1 if breaches or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
