# SPDX-License-Identifier: Apache-2.0
"""`plimsoll serve` with a real model gives the CPU's greedy texts on other devices, too, or differs only where
the two best tokens are about as likely: `text_cases.py PLIMSOLL DEVICE... [--all]`. Needs SmolLM2 in
$PLIMSOLL_TEST_MODELS and drivers of the devices. Three prompts, with --all twenty; tables come last."""
import os
import re
import subprocess
import sys

import harness
from harness import Server, parallel

MODEL = os.path.join(os.environ.get("PLIMSOLL_TEST_MODELS", ""), "SmolLM2-135M-Instruct.Q4_1.gguf")
# Log-probabilities of one token on the two devices: sums in another order move some 8-bit activations
# over to the neighbouring code. References on the CPU allow 0.3 (tests/golden/golden.c).
TOLERANCE = 0.3
TOKENS = 12
PROMPTS = [
    "The capital of France is", "Water boils at", "Once upon a time", "2 + 2 =", "The opposite of hot is",
    "Roses are red,", "The largest planet is", "A week has", "The sun rises in the", "Dogs like to",
    "def add(a, b):", "The first president of the United States was", "My favourite colour is",
    "To make tea, first", "The sky is", "In winter it", "A triangle has", "Ice is frozen", "Cats are",
    "The alphabet begins with",
]
# Small steps start in seconds on two cores; a wide batch would be stressed as wide. On Mesa's driver for
# the CPU only small ones do.
SIZES = {"vulkan": ("-c", "64", "-b", "16", "-np", "4")}
USUAL = ("--ctx-size", "512", "-b", "64", "-np", "4")


def answers(device, prompts, logprobs, sizes=USUAL):
    """The first choice of each prompt, four at a time."""
    with Server(*sizes, "--device", device, wait=False) as server:
        server.wait(timeout=1200)
        fields = {"temperature": 0, "max_tokens": TOKENS, "seed": 1, **({"logprobs": 2} if logprobs else {})}
        got = []
        for at in range(0, len(prompts), 4):
            got += parallel(lambda p: server.post("/v1/completions", {"prompt": p, **fields}, timeout=600),
                            prompts[at:at + 4])
        harness.check(all(status == 200 for status, _ in got), got)
        return [body["choices"][0] for _, body in got]


def judge(cpu, other):
    """Where the texts part, and how far apart the CPU's two best tokens were there."""
    if cpu["text"] == other["text"]:
        return "equal", None
    text = ""
    for token, top in zip(cpu["logprobs"]["tokens"], cpu["logprobs"]["top_logprobs"]):
        if not other["text"].startswith(text + token):
            break
        text += token
    best = sorted(top.values(), reverse=True)
    return f"at {len(text)}", best[0] - best[1]


def compare(device, prompts):
    """Prints a row for each prompt; returns how many texts are wrong."""
    sizes = SIZES.get(device, USUAL)
    rows = list(zip(prompts, answers("cpu", prompts, True, sizes), answers(device, prompts, False, sizes)))
    failed = equal = 0
    for prompt, cpu, other in rows:
        where, gap = judge(cpu, other)
        equal += gap is None
        bad = gap is not None and gap > TOLERANCE
        failed += bad
        print(f"{'FAIL' if bad else 'ok  '} {where:>8} {'' if gap is None else f'{gap:.4f}':>7}  "
              f"{prompt!r} -> {other['text']!r}" + ("" if gap is None else f", on the CPU {cpu['text']!r}"))
    print(f"{device}, {len(rows)} prompts of {TOKENS} tokens: {equal} equal, {len(rows) - equal - failed} part where "
          f"the best two lie within {TOLERANCE}, {failed} failed", flush=True)
    return failed


def main():
    binary, devices = sys.argv[1], [arg for arg in sys.argv[2:] if arg != "--all"]
    harness.BINARY, harness.MODEL = binary, MODEL
    listed = subprocess.run([binary, "devices"], capture_output=True, text=True).stdout
    absent = [device for device in devices if not re.search(rf"^{device}:\d", listed, re.M)]
    if not os.path.exists(MODEL) or absent:
        print(f"skipped: no model {MODEL}, or no device of {absent}")
        return harness.SKIP
    prompts = PROMPTS if "--all" in sys.argv else PROMPTS[:3]
    return 1 if sum(compare(device, prompts) for device in devices) else 0


if __name__ == "__main__":
    sys.exit(main())
