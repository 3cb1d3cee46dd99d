# SPDX-License-Identifier: Apache-2.0
"""Sampled output: for a seed, a device that draws tokens itself gives those that the CPU draws, alone
and among others. On the tiny model in BF16, with a driver over host memory, where the logits are the CPU's."""
import pathlib

from harness import Server, case, main, parallel, same

MODEL = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-bf16.gguf"
SIZES = ("-c", "256", "-b", "32", "-np", "4")
ASKS = [
    {},
    {"top_p": 0.9},
    {"top_k": 20, "top_p": 0.95, "temperature": 0.7},
    {"min_p": 0.1, "temperature": 1.5},
    {"temperature": 0},
    {"frequency_penalty": 0.5},
    {"logprobs": 1},
]


def texts(ask_all, *device):
    """The text of each, alone or all at once."""
    with Server(*SIZES, *device, model=str(MODEL)) as server:
        def text(at):
            fields = {"prompt": "abc", "max_tokens": 24, "temperature": 1, "seed": 40 + at, "ignore_eos": True}
            status, body = server.post("/v1/completions", {**fields, **ASKS[at]}, timeout=300)
            same(status, 200)
            return body["choices"][0]["text"]
        return parallel(text, range(len(ASKS))) if ask_all else [text(at) for at in range(len(ASKS))]


@case
def texts_are_those_of_the_cpu_alone_and_together():
    cpu = texts(True, "--device", "cpu")
    same(len(set(cpu)) > 3, True)
    same(texts(False), cpu)
    same(texts(True), cpu)


if __name__ == "__main__":
    main()
