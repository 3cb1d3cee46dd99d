# SPDX-License-Identifier: Apache-2.0
"""A limit of threads leaves room for only some of them: at every limit the server becomes ready and answers, or ends at
once with a message that names threads and not memory. The real engine with the tiny model; its own user id, for root."""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import time

import harness
from harness import Server, case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"
OTHER_USER = 64321  # has no other processes: only then the limit counts ours alone


class Limited(Server):
    def __init__(self, program, model, limit):
        self.log = tempfile.TemporaryFile("a+")

        def limited():
            if os.geteuid() == 0:
                os.setgid(OTHER_USER)
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
                os.setuid(OTHER_USER)
            else:
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "--port", "0", "-c", "512", "-np", "4", "-t", "4", "--memory-limit", "1GiB",
             "--no-plan-cache"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            preexec_fn=limited, env={**os.environ, "HOME": "/nonexistent"})
        self.port = None

    def is_ready(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"^READY: .* at http://[^:]+:(\d+)$", self.text(), re.M)
            if found:
                self.port = int(found.group(1))
                return True
            time.sleep(0.01)
        check(self.process.poll() is not None, f"neither ready nor ended: {self.text()}")
        return False


@case
def a_limit_of_threads_is_named_as_such():
    ready, refused, whose = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program, model = os.path.join(folder, "plimsoll"), os.path.join(folder, "tiny.gguf")
        shutil.copy(harness.BINARY, program)
        shutil.copy(TINY, model)
        os.chmod(program, 0o755)
        os.chmod(model, 0o644)
        for limit in list(range(1, 17)) + [40] if os.geteuid() == 0 else [1]:
            server = Limited(program, model, limit)
            if server.is_ready():
                status, answer = server.post("/v1/completions", {"prompt": "hello", "max_tokens": 4})
                check(status == 200, f"limit {limit}: {answer}")
                same(server.stop(20), 0)
                ready.append(limit)
                continue
            same(server.process.poll(), 1)
            found = re.search(r"the system gives no thread for (.*): a limit of threads is reached .*ulimit -u", server.text())
            check(found and "memory for" not in server.text(), f"limit {limit}: {server.text()}")
            whose.add(found.group(1))
            refused.append(limit)
    print(f"  refused at {refused} for {', '.join(sorted(whose))}; ready at {ready}")
    if os.geteuid() == 0:
        check(40 in ready and refused == list(range(1, len(refused) + 1)), (ready, refused))
        check(len(whose) == 4, whose)


if __name__ == "__main__":
    main()
