#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes real-NAME.ref.json for a real llama-architecture GGUF file.

An implementation independent of the engine: weights decoded by gguf-py, arithmetic in numpy float32,
keys and values cached in float32. Usage:

    pip install gguf numpy
    python3 make_refs.py SmolLM2-135M-Instruct.Q4_1.gguf TOKENS.json > real-smollm2-135m-instruct-q4_1.ref.json

TOKENS.json is any file of the same format: its token lists are the prompts.
"""
import json
import os
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

CONTINUATION = 48  # greedy tokens per case


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}

        def key(name):
            field = reader.fields["llama." + name]
            return field.parts[field.data[0]].tolist()[0]

        self.layers = key("block_count")
        self.heads = key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv")
        self.dim = key("embedding_length") // self.heads
        self.eps = np.float32(key("attention.layer_norm_rms_epsilon"))
        self.frequencies = key("rope.freq_base") ** (-np.arange(0, self.dim, 2) / self.dim)
        self.head = self.weights.get("output.weight", self.weights["token_embd.weight"])

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean() + self.eps) * weight

    def rope(self, x, position):
        angle = position * self.frequencies
        cos, sin = np.cos(angle), np.sin(angle)
        out = np.empty_like(x)
        out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
        out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
        return out

    def step(self, token, cache):
        """Logits after one more token; cache is a list of (keys, values) per layer, extended."""
        w, position = self.weights, len(cache[0][0])
        x = w["token_embd.weight"][token]
        for il in range(self.layers):
            def weight(name):
                return w[f"blk.{il}.{name}.weight"]

            h = self.norm(x, weight("attn_norm"))
            q = self.rope((weight("attn_q") @ h).reshape(self.heads, self.dim), position)
            cache[il][0].append(self.rope((weight("attn_k") @ h).reshape(self.kv_heads, self.dim), position))
            cache[il][1].append((weight("attn_v") @ h).reshape(self.kv_heads, self.dim))
            keys, values = np.array(cache[il][0]), np.array(cache[il][1])
            out = np.empty_like(q)
            for i in range(self.heads):
                j = i // (self.heads // self.kv_heads)
                score = keys[:, j] @ q[i] / np.sqrt(np.float32(self.dim))
                score = np.exp(score - score.max())
                out[i] = (score / score.sum()) @ values[:, j]
            x = x + weight("attn_output") @ out.reshape(-1)
            h = self.norm(x, weight("ffn_norm"))
            gate = weight("ffn_gate") @ h
            x = x + weight("ffn_down") @ (gate / (1 + np.exp(-gate)) * (weight("ffn_up") @ h))
        return self.head @ self.norm(x, w["output_norm.weight"])


def log_softmax(logits):
    x = logits.astype(np.float64) - logits.max()
    return x - np.log(np.exp(x).sum())


def case(model, name, tokens):
    cache = [([], []) for _ in range(model.layers)]
    nll = []
    for i, token in enumerate(tokens):
        logits = model.step(token, cache)
        if i + 1 < len(tokens):
            nll.append(round(float(-log_softmax(logits)[tokens[i + 1]]), 5))
    logprobs = log_softmax(logits)
    top = [[int(i), round(float(logprobs[i]), 5)] for i in np.argsort(-logprobs)[:20]]
    greedy, gap = [], []
    for _ in range(CONTINUATION):
        second, first = np.sort(logits)[-2:]
        greedy.append(int(logits.argmax()))
        gap.append(round(float(first - second), 4))
        logits = model.step(greedy[-1], cache)
    return {"name": name, "tokens": tokens, "top": top, "nll": nll, "greedy": greedy, "gap": gap}


def main():
    model = Model(sys.argv[1])
    prompts = json.load(open(sys.argv[2]))["cases"]
    json.dump(
        {
            "model": os.path.basename(sys.argv[1]),
            "oracle": f"numpy {np.__version__}, float32, weights decoded by gguf-py, rope base of the file",
            "cases": [case(model, c["name"], c["tokens"]) for c in prompts],
        },
        sys.stdout,
    )
    print()


if __name__ == "__main__":
    main()
