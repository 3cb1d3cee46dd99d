#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what a device runs into C: a file into an array, and such arrays into a table.

embed.py array KIND NAME IN OUT.c               one file
embed.py registry KIND OUT.c NAME:NEEDS:IN ...  the table of all of a kind, sorted by name

KIND is spirv (a module of shaders/, for backends/vulkan/shaders.h), cuda or hip (the device code of a
file in kernels/, for backends/gpudrv/images.h). NEEDS are names of enum plm_vk_needs joined by '+',
or empty; only modules have any.
"""
import array
import pathlib
import struct
import sys
import typing


class Kind(typing.NamedTuple):
    magic: bytes
    word: str     # of the array, as the module array calls it, and in C
    element: str
    symbol: str   # prefix of the arrays
    table: str
    count: str
    header: str   # declares both


IMAGES = "backends/gpudrv/images.h"
KINDS = {
    # A word of the machine's byte order: what the driver wants.
    "spirv": Kind(array.array("I", [0x07230203]).tobytes(), "I", "const uint32_t", "plm_spirv_",
                  "struct plm_vk_shader plm_vk_shaders", "plm_vk_n_shaders",
                  "backends/vulkan/shaders.h"),
    "cuda": Kind(bytes.fromhex("50ed55ba"), "Q", "_Alignas(64) const uint64_t", "plm_cuda_image_",
                 "struct plm_gpu_image plm_cuda_images", "plm_cuda_n_images", IMAGES),
    "hip": Kind(b"__CLANG_OFFLOAD_BUNDLE__", "Q", "_Alignas(64) const uint64_t", "plm_hip_image_",
                "struct plm_gpu_image plm_hip_images", "plm_hip_n_images", IMAGES),
}


def bytes_of(kind, blob):
    """How long an object says that it is: drivers are given no length, and read as far."""
    if kind == "cuda":
        header, rest = struct.unpack_from("<6xHQ", blob)
        return header + rest
    if kind == "hip":
        end, at = 0, 32
        for _ in range(struct.unpack_from("<24xQ", blob)[0]):
            offset, size, name = struct.unpack_from("<QQQ", blob, at)
            end, at = max(end, offset + size), at + 24 + name
        return end
    return len(blob) + -len(blob) % 4


def read(kind, path):
    blob = pathlib.Path(path).read_bytes()
    if not blob.startswith(KINDS[kind].magic):
        sys.exit(f"{path}: no {kind} object of this machine's byte order")
    try:
        said = bytes_of(kind, blob)
    except struct.error:  # in its very header
        said = len(blob) + 1
    if said > len(blob):
        sys.exit(f"{path}: the {kind} object is cut short: it has {len(blob)} bytes")
    return blob


def symbol(kind, name):
    return KINDS[kind].symbol + name.replace("-", "__")


def write_array(kind, name, source, out):
    k = KINDS[kind]
    words = array.array(k.word)
    blob = read(kind, source)
    words.frombytes(blob + bytes(-len(blob) % words.itemsize))
    rows = [", ".join(f"{w:#x}" for w in words[i:i + 8]) for i in range(0, len(words), 8)]
    pathlib.Path(out).write_text(
        "#include <stdint.h>\n\n"
        f"extern {k.element} {symbol(kind, name)}[];\n"
        f"{k.element} {symbol(kind, name)}[] = {{\n" + ",\n".join(rows) + ",\n};\n",
        encoding="ascii")


def registry(kind, out, entries):
    k = KINDS[kind]
    declared, rows = [], []
    for name, needs, source in sorted(entry.split(":", 2) for entry in entries):
        mask = " | ".join("PLM_VK_NEEDS_" + need.upper() for need in needs.split("+") if need) or "0"
        last = f", {mask}" if kind == "spirv" else ""
        declared.append(f"extern {k.element} {symbol(kind, name)}[];\n")
        rows.append(f'    {{"{name}", {symbol(kind, name)}, {len(read(kind, source))}{last}}},\n')
    pathlib.Path(out).write_text(
        f'#include <stdint.h>\n\n#include "{k.header}"\n\n' + "".join(declared) +
        f"\nconst {k.table}[] = {{\n" + "".join(rows) + "};\n"
        f"const size_t {k.count} = {len(rows)};\n",
        encoding="ascii")


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "array" and sys.argv[2] in KINDS:
        write_array(*sys.argv[2:])
    elif len(sys.argv) > 4 and sys.argv[1] == "registry" and sys.argv[2] in KINDS:
        registry(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
