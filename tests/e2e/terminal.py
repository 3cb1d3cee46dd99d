# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo-terminal, as a person meets it: keys go in, the screen's bytes come out."""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from harness import check

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    def __init__(self, *command, env=None, columns=100):
        self.raw = ""  # everything so far
        self.seen = ""  # what of it a person sees: without the switch of bracketed paste
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.at = 0  # up to where expect() has looked
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], list(command), {**os.environ, "TERM": "xterm", **(env or {})})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
        self.status = None

    def _read(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the program has ended
            data = b""
        self.raw += self.decoder.decode(data)
        # A switch of which the end is missing is not seen either.
        self.seen = re.sub(r"\x1b\[\?2004[hl]|\x1b(\[(\?(2(0(04?)?)?)?)?)?$", "", self.raw)
        return bool(data)

    def pastes_are_marked(self):
        return self.raw.rfind("\x1b[?2004h") > self.raw.rfind("\x1b[?2004l")

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def expect(self, pattern, timeout=30):
        """Waits for a regular expression in what comes after the last match; returns the match."""
        end = time.monotonic() + timeout
        while True:
            found = re.compile(pattern, re.S).search(self.seen, self.at)
            if found:
                self.at = found.end()
                return found
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"no {pattern!r} after {self.seen[self.at:]!r}")

    def rest(self, seconds):
        """What comes within some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._read(left):
                break
        text, self.at = self.seen[self.at:], len(self.seen)
        return text

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.type(text + "\n")

    def alive(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is None

    def end(self, timeout=30):
        """Waits until the program has ended; returns its exit status (negative: the signal)."""
        end = time.monotonic() + timeout
        while self.alive():
            check(time.monotonic() < end, f"it does not end; so far: {self.seen!r}")
            self._read(0.02)
        while self._read(0):
            pass
        return self.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
