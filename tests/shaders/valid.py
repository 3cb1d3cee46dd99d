#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs spirv-val over modules, and looks whether a module asks for a capability that its needs do
not name: a device would be given a module that it can not run.

Usage: valid.py VALIDATOR MODULE NEEDS VALIDATOR MODULE NEEDS ... (NEEDS as in shaders/meson.build)
"""
import array
import pathlib
import subprocess
import sys

OP_CAPABILITY = 17
# Capabilities by number (SPIR-V 1.6, 3.31). Those of the features that every device must have
# (shaders/README.md), and those that a need brings.
BASE = {
    1: "Shader", 11: "Int64", 22: "Int16", 39: "Int8", 61: "GroupNonUniform",
    4433: "StorageBuffer16BitAccess", 4448: "StorageBuffer8BitAccess",
    5347: "PhysicalStorageBufferAddresses",
}
BY_NEED = {
    "dot": {6017: "DotProductInput4x8Bit", 6018: "DotProductInput4x8BitPacked", 6019: "DotProduct"},
    "f16": {9: "Float16"},
    "coopmat_s8": {6022: "CooperativeMatrixKHR", 5345: "VulkanMemoryModel"},
}


def capabilities(path):
    words = array.array("I")
    words.frombytes(pathlib.Path(path).read_bytes())
    at = 5  # past the header
    while at < len(words) and words[at] & 0xFFFF == OP_CAPABILITY:
        yield words[at + 1]
        at += words[at] >> 16


def judge(validator, module, needs):
    result = subprocess.run(
        [validator, "--target-env", "vulkan1.3", "--scalar-block-layout", module],
        capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return result.stdout + result.stderr
    allowed = set(BASE).union(*(BY_NEED[need] for need in needs.split("+") if need))
    beyond = sorted(set(capabilities(module)) - allowed)
    return f"capabilities {beyond} are beyond its needs '{needs}'" if beyond else ""


def main():
    modules = list(zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]))
    failed = 0
    for validator, module, needs in modules:
        wrong = judge(validator, module, needs)
        if wrong:
            failed += 1
            print(f"{pathlib.Path(module).name}: {wrong.strip()}")
    print(f"{len(modules) - failed} of {len(modules)} modules are valid")
    return 1 if failed or not modules else 0


if __name__ == "__main__":
    sys.exit(main())
