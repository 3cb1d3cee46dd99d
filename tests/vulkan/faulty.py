# SPDX-License-Identifier: Apache-2.0
"""`plimsoll serve --device vulkan` behind the fault layer (README.md)."""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import faulty_server  # noqa: E402
from harness import skip  # noqa: E402

# A card with memory of its own beside a small window that the host sees: what a discrete GPU has.
DISCRETE = ("heap 0 size=512MiB device-local=1; heap 1 size=512MiB; heap 2 size=64MiB device-local=1;"
            "memtype 2 DVC; memtype 0 D; memtype 1 VC; memtype 1 VCK; identity type=discrete;"
            "budget true")


def need_vulkan():
    """Ends the program as skipped where no Vulkan device answers."""
    listed = subprocess.run([sys.argv[1], "devices", "--json"], capture_output=True, text=True, timeout=60)
    if not any(device["id"].startswith("vulkan") for device in json.loads(listed.stdout)):
        skip(f"no Vulkan device: {listed.stderr.strip()}")


class FaultyServer(faulty_server.FaultyServer):
    """layers: other layers than the test's environment names."""
    VARIABLE = "PLM_VK_FAULTS"
    COUNTERS = faulty_server.counters_of(HERE / "account.def")
    DEVICE = "vulkan"

    def __init__(self, *args, layers=None, **options):
        env = None if layers is None else {"VK_INSTANCE_LAYERS": layers}
        super().__init__(*args, env=env, **options)
