#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny random models of architectures, and what transformers computes with them.

Usage: make_models.py TOKENIZER.gguf FOLDER [NAME...]
TOKENIZER.gguf: a model of this folder whose vocabulary (320 tokens) the new ones take over.

Weights are random draws, rounded to Q8_0 where they are matrices, written with gguf-py, read back,
decoded and put into the transformers model, so that quantisation is not in the comparison. Of six
seeds the one counts whose greedy continuation hangs least on rounding.

Needs numpy, torch, transformers, gguf of PyPI.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

VOCAB = 320
CASES = (1, 2, 17, 63, 300)
LAST_ROWS = 8  # of the longest case
GREEDY = 24
PROMPT = 9
SEEDS = 6


def permute(weights, heads):
    """Rows of halves to rows of adjacent pairs, as converters store them for NORM rope."""
    rows = weights.shape[0]
    return weights.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def unpermute(weights, heads):
    rows = weights.shape[0]
    return weights.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(weights.shape)


LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
HEAD_NORMS = {
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}
GEMMA = LAYER | HEAD_NORMS | {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}

SMALL = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=160, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, rms_norm_eps=1e-5,
             bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")


def yarn(factor, original, theta, **more):
    return dict(rope_type="yarn", factor=factor, original_max_position_embeddings=original,
                rope_theta=theta, **more)


def yarn_keys(writer, factor, original):
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(factor)
    writer.add_rope_scaling_orig_ctx_len(original)


def smollm3():
    config = transformers.SmolLM3Config(**SMALL, num_hidden_layers=5, tie_word_embeddings=True,
                                        no_rope_layer_interval=4, use_sliding_window=False,
                                        rope_parameters=dict(rope_type="default", rope_theta=1e6))
    return config, LAYER, True, 0.0, lambda writer: writer.add_rope_freq_base(1e6)


def qwen3_yarn():
    config = transformers.Qwen3Config(**SMALL, num_hidden_layers=3, tie_word_embeddings=True,
                                      rope_parameters=yarn(4.0, 128, 1e6))

    def keys(writer):
        writer.add_rope_freq_base(1e6)
        yarn_keys(writer, 4.0, 128)
    return config, LAYER | HEAD_NORMS, False, 0.0, keys


def mistral3():
    # Beyond the original context, which the longest case is twice, the temperature of attention rises.
    rope = yarn(8.0, 128, 1e6, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                llama_4_scaling_beta=0.5)
    config = transformers.Ministral3Config(**SMALL, num_hidden_layers=3, tie_word_embeddings=False,
                                           sliding_window=None, rope_parameters=rope)

    def keys(writer):
        writer.add_rope_freq_base(1e6)
        yarn_keys(writer, 8.0, 128)
        writer.add_rope_scaling_yarn_log_mul(1.0)
        writer.add_float32("mistral3.attention.temperature_scale", 0.5)
    return config, LAYER, True, 0.0, keys


def gemma3_cap():
    rope = dict(sliding_attention=dict(rope_type="default", rope_theta=1e4),
                full_attention=dict(rope_type="default", rope_theta=1e6))
    config = transformers.Gemma3TextConfig(**SMALL, num_hidden_layers=3, tie_word_embeddings=True,
                                           sliding_window=24, query_pre_attn_scalar=16,
                                           layer_types=["sliding_attention", "full_attention",
                                                        "sliding_attention"], rope_parameters=rope,
                                           hidden_activation="gelu_pytorch_tanh",
                                           final_logit_softcapping=4.0)

    def keys(writer):
        writer.add_rope_freq_base(1e6)
        writer.add_sliding_window(24)
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
        writer.add_final_logit_softcapping(4.0)
    return config, GEMMA, False, 1.0, keys


MODELS = {
    # name: architecture of the file, configuration, note
    "smollm3-q8_0": ("smollm3", smollm3, "the fourth layer of five rotates nothing"),
    "qwen3-yarn-q8_0": ("qwen3", qwen3_yarn, "yarn over an original context of 128"),
    "gemma3-cap-q8_0": ("gemma3", gemma3_cap, "soft cap of the logits, full attention on every second layer"),
    "mistral3-q8_0": ("mistral3", mistral3, "yarn whose magnitude cancels, temperature of attention"),
}


def make_weights(names, shapes, seed):
    rng = np.random.default_rng(seed)
    weights = {}
    for name in names:
        shape = shapes[name]
        if len(shape) == 1:
            weights[name] = (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
        else:
            weights[name] = (rng.standard_normal(shape) * 1.0 / np.sqrt(shape[1])).astype(np.float32)
    return weights


def file_names(config, layer_map):
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if not config.tie_word_embeddings:
        names["output.weight"] = "lm_head.weight"
    for il in range(config.num_hidden_layers):
        for ours, theirs in layer_map.items():
            names[f"blk.{il}.{ours}"] = f"model.layers.{il}.{theirs}"
    return names


def write(path, arch, name, config, names, weights, permuted, keys, tokenizer):
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_name(f"tiny {name}")
    writer.add_type("model")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)
    keys(writer)
    for field in gguf.GGUFReader(tokenizer).fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), kind)
    for ours in names:
        data = weights[ours]
        if permuted and ours.endswith("attn_q.weight"):
            data = permute(data, config.num_attention_heads)
        if permuted and ours.endswith("attn_k.weight"):
            data = permute(data, config.num_key_value_heads)
        if data.ndim == 1:
            writer.add_tensor(ours, data)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(ours, gguf.quants.quantize(np.ascontiguousarray(data), kind),
                              raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(path, config, names, permuted):
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if permuted and tensor.name.endswith("attn_q.weight"):
            data = unpermute(data, config.num_attention_heads)
        if permuted and tensor.name.endswith("attn_k.weight"):
            data = unpermute(data, config.num_key_value_heads)
        weights[names[tensor.name]] = np.ascontiguousarray(data, np.float32)
    return weights


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def greedy(model, prompt):
    tokens, least = list(prompt), float("inf")
    for _ in range(GREEDY):
        row = logits_of(model, tokens)[-1]
        best = np.sort(row)[-2:]
        least = min(least, float(best[1] - best[0]))
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], least


def make_one(tokenizer, folder, name, seed):
    arch, describe, note = MODELS[name]
    config, layer_map, permuted, offset, keys = describe()
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    state = model.state_dict()
    names = file_names(config, layer_map)
    shapes = {ours: tuple(state[theirs].shape) for ours, theirs in names.items()}
    path = folder / f"{name}.gguf"
    write(path, arch, name, config, names, make_weights(names, shapes, seed), permuted, keys, tokenizer)
    read = read_back(path, config, names, permuted)
    for theirs, data in read.items():
        # Gemma's files hold norm weights with 1 added.
        state[theirs].copy_(torch.from_numpy(data - (offset if data.ndim == 1 else 0)))
    model.tie_weights()
    rng = np.random.default_rng(seed + 1000)
    prompts = [rng.integers(3, 300, PROMPT).tolist() for _ in range(8)]
    found = [greedy(model, p) for p in prompts]
    best = max(range(len(prompts)), key=lambda i: found[i][1])
    return model, note, arch, rng, prompts[best], found[best]


def make(tokenizer, folder, name):
    seed = max(range(SEEDS), key=lambda s: make_one(tokenizer, folder, name, s)[5][1])
    model, note, arch, rng, prompt, (tokens, gap) = make_one(tokenizer, folder, name, seed)
    cases, spread = [], []
    for n in CASES:
        ids = rng.integers(3, 300, n).tolist()
        rows = logits_of(model, ids)
        spread.append(rows.ravel())
        first = n - LAST_ROWS if n == CASES[-1] else 0
        file = f"{name}.n{n}.f32"
        rows[first:].astype("<f4").tofile(folder / file)
        cases.append(dict(id=f"n{n}", tokens=ids, logits_f32_file=file, first_row=first, rows=n - first))
    reference = dict(model=f"{name}.gguf", arch=arch, note=note, n_vocab=VOCAB,
                     oracle=dict(transformers=transformers.__version__, torch=torch.__version__,
                                 numpy=np.__version__, dtype="float32", attention="eager", seed=seed),
                     logits_std=float(np.concatenate(spread).std()), cases=cases,
                     greedy=dict(prompt=prompt, tokens=tokens, min_gap=gap))
    (folder / f"{name}.ref.json").write_text(json.dumps(reference) + "\n")
    print(f"{name}: seed {seed}, spread {reference['logits_std']:.2f}, gap {gap:.3f}")


def main():
    tokenizer, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in sys.argv[3:] or MODELS:
        make(tokenizer, folder, name)


main()
