#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns SPIR-V modules into C.

embed.py module NAME IN.spv OUT.c               the words of one module
embed.py registry OUT.c NAME:NEEDS:IN.spv ...   the table of backends/vulkan/shaders.h; NEEDS are
                                                names of enum plm_vk_needs joined by '+', or empty
"""
import array
import pathlib
import sys

MAGIC = 0x07230203  # SPIR-V, first word


def read_words(path):
    blob = pathlib.Path(path).read_bytes()
    words = array.array("I")
    if len(blob) % words.itemsize != 0:
        sys.exit(f"{path}: {len(blob)} bytes are no whole words")
    words.frombytes(blob)
    if not words or words[0] != MAGIC:
        sys.exit(f"{path}: no SPIR-V of this machine's byte order")
    return words


def symbol(name):
    return "plm_spirv_" + name.replace("-", "__")


def module(name, source, out):
    words = read_words(source)
    rows = [", ".join(f"{w:#x}" for w in words[i:i + 8]) for i in range(0, len(words), 8)]
    pathlib.Path(out).write_text(
        "#include <stdint.h>\n\n"
        f"extern const uint32_t {symbol(name)}[];\n"
        f"const uint32_t {symbol(name)}[] = {{\n" + ",\n".join(rows) + ",\n};\n",
        encoding="ascii")


def registry(out, entries):
    declared, rows = [], []
    for name, needs, source in sorted(entry.split(":", 2) for entry in entries):
        mask = " | ".join("PLM_VK_NEEDS_" + need.upper() for need in needs.split("+") if need) or "0"
        size = len(read_words(source)) * 4
        declared.append(f"extern const uint32_t {symbol(name)}[];\n")
        rows.append(f'    {{"{name}", {symbol(name)}, {size}, {mask}}},\n')
    pathlib.Path(out).write_text(
        '#include "backends/vulkan/shaders.h"\n\n' + "".join(declared) +
        "\nconst struct plm_vk_shader plm_vk_shaders[] = {\n" + "".join(rows) + "};\n"
        f"const size_t plm_vk_n_shaders = {len(rows)};\n",
        encoding="ascii")


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "module":
        module(*sys.argv[2:])
    elif len(sys.argv) > 3 and sys.argv[1] == "registry":
        registry(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
