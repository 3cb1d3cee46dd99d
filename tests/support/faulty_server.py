# SPDX-License-Identifier: Apache-2.0
"""`plimsoll serve` above a driver that fails on purpose (tests/vulkan, tests/fakegpu): a server with a
control file and the driver's counters, and the load that the cases put on it."""
import os
import pathlib
import random
import re
import struct
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from harness import Server, check, parallel, same  # noqa: E402

TINY = HERE.parent / "data/models/llama-tied-q4_0.gguf"
PROMPTS = ["One two three", "The sea is", "Load line", "a b c d e f g h i j"]
TOKENS = 48


def counters_of(definition):
    """Names of the counters in the order of the account file."""
    return re.findall(r"^COUNTER\((\w+)\)", pathlib.Path(definition).read_text(), re.M)


class FaultyServer(Server):
    """A server under rules; `rules` holds from the start, say() adds to it while the server runs. A
    subclass says of its driver:"""
    VARIABLE = None  # of the environment, that names the rules
    COUNTERS = ()
    DEVICE = None

    def __init__(self, *args, rules="", env=None, **options):
        self.folder = tempfile.TemporaryDirectory()
        self.control = pathlib.Path(self.folder.name) / "control"
        self.account = pathlib.Path(self.folder.name) / "account"
        env = {self.VARIABLE: f"{rules}; control {self.control}; account {self.account}", **(env or {})}
        super().__init__("--device", self.DEVICE, "-c", "512", "-np", "4", "-b", "64", "-v", *args,
                         model=str(TINY), env=env, **options)

    def say(self, rules):
        """Puts these rules in the place of those that were said before."""
        new = self.control.with_suffix(".new")
        new.write_text(rules)
        os.replace(new, self.control)

    def counters(self):
        names = self.COUNTERS
        data = self.account.read_bytes() if self.account.exists() else b""
        if len(data) < 8 * len(names):
            return dict.fromkeys(names, 0)
        return dict(zip(names, struct.unpack(f"={len(names)}Q", data[:8 * len(names)])))

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


def a_hundred_requests(server):
    """Of every shape, up to 20 at a time; each is answered."""
    rng = random.Random(5)
    words = "one two three four five six seven eight nine ten".split()

    def one(_):
        prompt = " ".join(rng.choices(words, k=rng.choice([1, 3, 17, 40])))
        status, answer = complete(server, prompt, tokens=rng.choice([1, 2, 9]))
        same((status, type(answer)), (200, str))

    for n in (1, 3, 8) * 5 + (20, 20):
        parallel(one, range(n))


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
