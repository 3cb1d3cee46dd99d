#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes llama-k256-iq4_xs.* beside this file, and ../quants/iq4_xs.*.

    pip install gguf==0.19.0 numpy
    python3 make_iq4_xs.py

The model is llama-k256-q4_k_m with its weights decoded and quantised again, by a simple rule, to IQ4_XS. gguf-py reads that
type and does not write it. The references are computed by the independent implementation of ../real/make_refs.py from the
weights as gguf-py decodes them out of the new file."""
import json
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "real"))
import make_refs  # noqa: E402

SOURCE, NAME = "llama-k256-q4_k_m", "llama-k256-iq4_xs"
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
GREEDY = 24
KEPT_ROWS = 8  # of the longest case


def packed(d, scales, codes):
    """Blocks of 256: float16 d [n], scales [n, 8] in -32 .. 31 and codes [n, 8, 32] as bytes of the format."""
    raw = (scales + 32).astype(np.uint16)
    high = np.bitwise_or.reduce((raw >> 4) << (2 * np.arange(8, dtype=np.uint16)), axis=1).astype("<u2")
    low = (raw[:, 0::2] & 15 | (raw[:, 1::2] & 15) << 4).astype(np.uint8)
    nibbles = (codes[:, :, :16] | codes[:, :, 16:] << 4).astype(np.uint8)
    return np.concatenate([d.astype("<f2").view(np.uint8).reshape(-1, 2), high.view(np.uint8).reshape(-1, 2), low,
                           nibbles.reshape(-1, 128)], axis=1)


def quantised(x):
    """Rows of floats to rows of IQ4_XS: a sub-block's factor lets its largest magnitude reach the last level."""
    blocks = x.reshape(-1, 8, 32)
    most = np.abs(blocks).max(axis=2)
    d = (most.max(axis=1) / (113 * 31)).astype(np.float16)
    unit = d.astype(np.float32)[:, None]
    scales = np.clip(np.rint(most / (113 * unit)), 1, 31).astype(np.int64)
    scaled = blocks / (unit * scales)[:, :, None]
    codes = np.abs(scaled[..., None] - LEVELS).argmin(axis=-1)
    return packed(d, scales, codes).reshape(x.shape[0], -1)


def write_model():
    reader = GGUFReader(HERE / f"{SOURCE}.gguf")
    writer = GGUFWriter(HERE / f"{NAME}.gguf", "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        if key == "general.name":
            value = f"tiny {NAME}"
        elif key == "general.file_type":
            value = 30  # mostly IQ4_XS
        kind = field.types[0]
        writer.add_key_value(key, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if weights.ndim == 1:
            writer.add_tensor(tensor.name, weights)
        else:
            writer.add_tensor(tensor.name, quantised(weights), raw_dtype=Type.IQ4_XS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def all_logits(model, tokens, n_more=0):
    """Logits after each token; n_more best tokens are appended and followed."""
    cache = [([], []) for _ in range(model.layers)]
    rows, tokens, i = [], list(tokens), 0
    while i < len(tokens):
        rows.append(model.step(tokens[i], cache).astype(np.float32))
        i += 1
        if i == len(tokens) and n_more > 0:
            tokens.append(int(rows[-1].argmax()))
            n_more -= 1
    return np.array(rows), tokens


def write_refs():
    source = json.load(open(HERE / f"{SOURCE}.ref.json"))
    model = make_refs.Model(HERE / f"{NAME}.gguf")
    cases, everything = [], []
    for case in source["cases"]:
        logits, _ = all_logits(model, case["tokens"])
        everything.append(logits)
        first = 0 if len(logits) <= 63 else len(logits) - KEPT_ROWS
        name = f"{NAME}.{case['id']}.f32"
        logits[first:].astype("<f4").tofile(HERE / name)
        best = np.argsort(-logits[-1])[:20]
        cases.append({"id": case["id"], "tokens": case["tokens"], "logits_f32_file": name, "first_row": first,
                      "rows": len(logits) - first, "logits_last_top": [[int(i), float(logits[-1][i])] for i in best]})
    # Of the cases' beginnings, the prompt whose continuation is the least in doubt.
    tries = []
    for case in source["cases"]:
        for at in range(0, max(0, len(case["tokens"]) - 8), 9):
            prompt = case["tokens"][at:at + 9]
            rows, tokens = all_logits(model, prompt, GREEDY)
            best = np.sort(rows[8:8 + GREEDY], axis=1)
            tries.append((float((best[:, -1] - best[:, -2]).min()), prompt, tokens[9:9 + GREEDY]))
    gap, prompt, tokens = max(tries)
    json.dump({"model": f"{NAME}.gguf", "arch": "llama", "note": "rows of 256 and 512, IQ4_XS", "n_vocab": source["n_vocab"],
               "oracle": {"numpy": np.__version__, "gguf": "0.19.0", "dtype": "float32"},
               "logits_std": float(np.concatenate(everything).std()), "cases": cases,
               "greedy": {"prompt": prompt, "tokens": tokens, "min_gap": gap}},
              open(HERE / f"{NAME}.ref.json", "w"), separators=(",", ":"))
    print(f"logits_std {np.concatenate(everything).std():.3f}, least gap of the greedy tokens {gap:.3f}")


def write_blocks():
    """64 blocks: 32 of normal data, each with its own scale, then random bits with a sane scale of either sign."""
    rng = np.random.default_rng(14)
    normal = quantised(rng.standard_normal((32, 256), np.float32) * np.exp2(rng.uniform(-6, 4, (32, 1))).astype(np.float32))
    bits = rng.integers(0, 256, (32, 136), np.uint8)
    d = (rng.standard_normal(32) * 0.001).astype("<f2")
    bits[0, 2:], bits[1, 2:] = 0, 255
    d[2] = 3e-7  # a subnormal half
    bits[:, :2] = d.view(np.uint8).reshape(32, 2)
    blocks = np.concatenate([normal, bits])
    folder = HERE.parent / "quants"
    blocks.tofile(folder / "iq4_xs.blk")
    dequantize(blocks, Type.IQ4_XS).astype("<f4").tofile(folder / "iq4_xs.f32")


if __name__ == "__main__":
    write_model()
    write_refs()
    write_blocks()
