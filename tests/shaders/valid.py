#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs spirv-val over modules. Usage: valid.py VALIDATOR MODULE VALIDATOR MODULE ..."""
import pathlib
import subprocess
import sys

failed = 0
pairs = list(zip(sys.argv[1::2], sys.argv[2::2]))
for validator, module in pairs:
    result = subprocess.run(
        [validator, "--target-env", "vulkan1.3", "--scalar-block-layout", module],
        capture_output=True, text=True, check=False)
    if result.returncode != 0:
        failed += 1
        print(f"{pathlib.Path(module).name}: {result.stdout}{result.stderr}".rstrip())
print(f"{len(pairs) - failed} of {len(pairs)} modules are valid")
sys.exit(1 if failed or not pairs else 0)
