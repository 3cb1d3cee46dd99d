# SPDX-License-Identifier: Apache-2.0
"""`plimsoll serve` on a fake driver (README.md): the backend is the second argument of the program."""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import faulty_server  # noqa: E402
from harness import check  # noqa: E402

BACKEND = sys.argv.pop(2)


class FaultyServer(faulty_server.FaultyServer):
    VARIABLE = "PLM_FAKE_GPU"
    COUNTERS = faulty_server.counters_of(HERE / "account.def")
    DEVICE = BACKEND


def need_fake():
    """The driver that is found must be the fake one, and never a card's."""
    listed = subprocess.run([sys.argv[1], "devices", "--json"], capture_output=True, text=True, timeout=60)
    names = [device["name"] for device in json.loads(listed.stdout) if device["id"].startswith(BACKEND)]
    check(names and all(name.startswith("Fake") for name in names), f"{names}: {listed.stderr.strip()}")
