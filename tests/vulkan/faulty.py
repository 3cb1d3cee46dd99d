# SPDX-License-Identifier: Apache-2.0
"""`plimsoll serve --device vulkan` behind the fault layer (README.md): a server with a control file and
the layer's counters, and the load that the cases put on it."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402
from harness import Server, check, skip  # noqa: E402

TINY = HERE.parent / "data/models/llama-tied-q4_0.gguf"
COUNTERS = re.findall(r"^COUNTER\((\w+)\)", (HERE / "account.def").read_text(), re.M)
# A card with memory of its own beside a small window that the host sees: what a discrete GPU has.
DISCRETE = ("heap 0 size=512MiB device-local=1; heap 1 size=512MiB; heap 2 size=64MiB device-local=1;"
            "memtype 2 DVC; memtype 0 D; memtype 1 VC; memtype 1 VCK; identity type=discrete;"
            "budget true")
PROMPTS = ["One two three", "The sea is", "Load line", "a b c d e f g h i j"]
TOKENS = 48


def need_vulkan():
    """Ends the program as skipped where no Vulkan device answers."""
    listed = subprocess.run([sys.argv[1], "devices", "--json"], capture_output=True, text=True, timeout=60)
    if not any(device["id"].startswith("vulkan") for device in json.loads(listed.stdout)):
        skip(f"no Vulkan device: {listed.stderr.strip()}")


class FaultyServer(Server):
    """A server under rules; `rules` holds from the start, say() adds to it while the server runs. layers:
    other layers than the test's environment names."""

    def __init__(self, *args, rules="", layers=None, **options):
        self.folder = tempfile.TemporaryDirectory()
        self.control = pathlib.Path(self.folder.name) / "control"
        self.account = pathlib.Path(self.folder.name) / "account"
        env = {"PLM_VK_FAULTS": f"{rules}; control {self.control}; account {self.account}"}
        if layers is not None:
            env["VK_INSTANCE_LAYERS"] = layers
        super().__init__("--device", "vulkan", "-c", "512", "-np", "4", "-b", "64", "-v", *args,
                         model=str(TINY), env=env, **options)

    def say(self, rules):
        """Puts these rules in the place of those that were said before."""
        new = self.control.with_suffix(".new")
        new.write_text(rules)
        os.replace(new, self.control)

    def counters(self):
        data = self.account.read_bytes() if self.account.exists() else b""
        if len(data) < 8 * len(COUNTERS):
            return dict.fromkeys(COUNTERS, 0)
        return dict(zip(COUNTERS, struct.unpack(f"={len(COUNTERS)}Q", data[:8 * len(COUNTERS)])))

    def close(self):
        self.log.close()
        self.folder.cleanup()

    def __exit__(self, kind, *rest):
        try:
            super().__exit__(kind, *rest)
        finally:
            self.folder.cleanup()


def complete(server, prompt, tokens=TOKENS, timeout=120):
    """(status, text or error)"""
    status, answer = server.post("/v1/completions", {"prompt": prompt, "temperature": 0,
                                                     "max_tokens": tokens, "ignore_eos": True},
                                 timeout=timeout)
    return status, answer["choices"][0]["text"] if status == 200 else answer["error"]


class Load:
    """One stream per prompt, which all run when the constructor returns; texts() waits for the ends."""

    def __init__(self, server, prompts=PROMPTS, tokens=TOKENS):
        self.results = [None] * len(prompts)
        self.begun = [threading.Event() for _ in prompts]
        self.threads = [threading.Thread(target=self.run, args=(server, i, prompt, tokens))
                        for i, prompt in enumerate(prompts)]
        for thread in self.threads:
            thread.start()
        for begun in self.begun:
            check(begun.wait(60), "a stream does not begin")

    def run(self, server, i, prompt, tokens):
        stream = None
        try:
            stream = server.stream("/v1/completions",
                                   {"prompt": prompt, "temperature": 0, "max_tokens": tokens,
                                    "ignore_eos": True, "stream": True}, timeout=120)
            check(stream.head() == 200, f"status {stream.status}")
            text = ""
            for event in stream.events():
                self.begun[i].set()
                if event == "[DONE]":
                    self.results[i] = text
                    return
                if "error" in event:
                    self.results[i] = event["error"]
                    return
                if event["choices"]:
                    text += event["choices"][0]["text"]
        except Exception as error:  # the case judges it
            self.results[i] = repr(error)
        finally:
            self.begun[i].set()
            if stream is not None:
                stream.close()

    def texts(self):
        for thread in self.threads:
            thread.join(150)
            check(not thread.is_alive(), "a stream does not end")
        return self.results
