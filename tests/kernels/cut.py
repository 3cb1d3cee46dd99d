#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An image that is cut short or none at all is not embedded: cut.py EMBED.PY BACKEND IMAGE."""
import pathlib
import subprocess
import sys
import tempfile


def embeds(embed, backend, blob):
    with tempfile.TemporaryDirectory() as work:
        image = pathlib.Path(work, "image")
        image.write_bytes(blob)
        done = subprocess.run([sys.executable, embed, "array", backend, "x", image, pathlib.Path(work, "x.c")],
                              check=False, capture_output=True, text=True)
    if done.returncode != 0 and str(image) not in done.stderr.splitlines()[0]:
        sys.exit(f"no message: {done.stderr}")
    return done.returncode == 0


def main():
    embed, backend, path = sys.argv[1:]
    blob = pathlib.Path(path).read_bytes()
    wrong = [] if embeds(embed, backend, blob) else ["the image itself is refused"]
    for n in (0, 1, 10, 30, 100, len(blob) // 2, len(blob) - 1):
        if embeds(embed, backend, blob[:n]):
            wrong.append(f"{n} of its {len(blob)} bytes are taken")
    if embeds(embed, backend, b"\x7fELF" + blob[4:]):
        wrong.append("another kind of file is taken")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
