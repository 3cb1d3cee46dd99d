# SPDX-License-Identifier: Apache-2.0
"""How a part of tests/device/run ends, other than well, and what it started with it."""
import os
import signal


class Failed(Exception):
    """A part that did not pass; the text says why."""


class Cut(Exception):
    """A part that no time was left for."""


def end_group(child):
    """Ends a program that was started in a session of its own, and all that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
