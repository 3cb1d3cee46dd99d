# SPDX-License-Identifier: Apache-2.0
"""A memory control group of a test's own, v1 or v2: a limit that the kernel enforces by killing."""
import os
import pathlib
import time


class NoGroup(Exception):
    """None can be made here: no privilege, no controller."""


def _mounts():
    """(version, mount point, root of the mount) of each hierarchy with memory in it."""
    with open("/proc/self/mountinfo") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            kind, _, options = rest.split(None, 2)
            root, point = fields.split()[3:5]
            if kind == "cgroup2":
                yield 2, point, root
            elif kind == "cgroup" and "memory" in options.strip().split(","):
                yield 1, point, root


def _own(version):
    """This process's group in that hierarchy."""
    with open("/proc/self/cgroup") as file:
        for line in file:
            number, controllers, path = line.rstrip("\n").split(":", 2)
            if (number == "0") if version == 2 else ("memory" in controllers.split(",")):
                return path
    return "/"


def _parents():
    """Groups in which one might be made. A v2 group that holds processes has no children with a
    limit, so the groups above it are tried as well."""
    for version, point, root in _mounts():
        path = pathlib.PurePosixPath(_own(version))
        for above in (path, *path.parents):
            relative = os.path.relpath(above, root) if root != "/" else str(above).lstrip("/")
            if not relative.startswith(".."):
                yield version, pathlib.Path(point) / relative


class Group:
    """with Group(limit) as group: Server(..., prefix=group.prefix)

    Whatever ran in it, the kernel must have killed nobody: that is checked at the end."""

    def __init__(self, limit):
        reasons = []
        for self.version, parent in _parents():
            self.path = parent / f"plimsoll-test-{os.getpid()}-{time.monotonic_ns()}"
            try:
                self.path.mkdir()
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror}")
                continue
            try:
                self.set(limit)
                return
            except OSError as error:
                reasons.append(f"{self.path}: {error.strerror}")
                self.path.rmdir()
        raise NoGroup("; ".join(reasons) or "no memory controller is mounted")

    def set(self, limit):
        """The limit in bytes. What swaps is not killed, so nothing may swap."""
        if self.version == 2:
            (self.path / "memory.max").write_text(str(limit))
            swap = self.path / "memory.swap.max"
            if swap.exists():
                swap.write_text("0")
            return
        both = self.path / "memory.memsw.limit_in_bytes"  # of memory and swap; never below memory's
        if both.exists():
            both.write_text("-1")
        (self.path / "memory.limit_in_bytes").write_text(str(limit))
        if both.exists():
            both.write_text(str(limit))

    @property
    def prefix(self):
        """A command that enters the group and runs what follows in its own place."""
        return ["/bin/sh", "-c", f'echo $$ > "{self.path}/cgroup.procs" && exec "$@"', "sh"]

    def _field(self, file, name):
        for line in (self.path / file).read_text().splitlines():
            if line.split()[0] == name:
                return int(line.split()[1])
        raise KeyError(name)

    def _kills(self):
        return self._field("memory.events" if self.version == 2 else "memory.oom_control", "oom_kill")

    def usage(self):
        """Bytes charged now."""
        return int((self.path / ("memory.current" if self.version == 2 else "memory.usage_in_bytes")).read_text())

    def peak(self):
        """The most that was ever charged, or None where the kernel does not say."""
        file = self.path / ("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")
        return int(file.read_text()) if file.exists() else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        kills = self._kills()
        self._remove()
        if kills > 0:  # said first: it is why whatever else went wrong did
            raise AssertionError(f"the kernel killed {kills} processes for memory")

    def _remove(self):
        for _ in range(100):  # the kernel lets go of the last process a moment after its end
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)
