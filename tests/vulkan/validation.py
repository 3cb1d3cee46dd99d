#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program under the Khronos validation layer with core and synchronisation checks.

validation.py CONTROL PROGRAM [ARGUMENT ...]

Fails where the program does, and where the layer has anything to say. CONTROL is a program that does
two things wrong; that the layer says so shows that it listens. Exit 77 without layer or device.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

LAYER = "VK_LAYER_KHRONOS_validation"
MANIFESTS = [pathlib.Path(root) / "vulkan/explicit_layer.d/VkLayer_khronos_validation.json"
             for root in ("/usr/share", "/usr/local/share", "/etc")]
SETTINGS = """
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = {log}
"""
# What the control must bring out.
EXPECTED = ["VUID-VkBufferCreateInfo-size-00912", "SYNC-HAZARD-WRITE-AFTER-WRITE"]


def run(command, folder):
    """Exit status of a command, and what the layer said."""
    log = folder / "messages"
    log.write_text("")
    (folder / "vk_layer_settings.txt").write_text(SETTINGS.format(log=log))
    layers = [LAYER] + [name for name in [os.environ.get("VK_INSTANCE_LAYERS")] if name]
    environment = dict(os.environ, VK_INSTANCE_LAYERS=":".join(layers),
                       VK_LAYER_SETTINGS_PATH=str(folder / "vk_layer_settings.txt"))
    status = subprocess.run(command, env=environment, check=False).returncode
    return status, log.read_text(errors="replace")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if not any(manifest.exists() for manifest in MANIFESTS):
        print(f"{LAYER} is not installed")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        status, said = run(sys.argv[1:2], folder)
        if status != 0:
            return status
        missing = [text for text in EXPECTED if text not in said]
        if missing:
            print(f"FAIL the layer did not see what the control did wrong: {', '.join(missing)}\n{said}")
            return 1
        status, said = run(sys.argv[2:], folder)
    if said:
        print(f"FAIL {said.count('MessageID')} messages of the validation layer; the first:\n{said[:4000]}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
