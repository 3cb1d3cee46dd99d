# SPDX-License-Identifier: Apache-2.0
"""How a part of tests/device/run ends, other than well."""


class Failed(Exception):
    """A part that did not pass; the text says why."""


class Cut(Exception):
    """A part that no time was left for."""
