# SPDX-License-Identifier: Apache-2.0
"""Files that can not be loaded: `plimsoll inspect` says why and every command's error names the file, what is
wrong in it and what is supported. The files are the tiny model with a few bytes changed."""
import json
import pathlib
import struct
import subprocess
import tempfile

import harness
from harness import case, check, main, same

TINY = pathlib.Path(__file__).parent.parent / "data/models/llama-tied-q4_0.gguf"
TYPES_DEF = pathlib.Path(__file__).parent.parent.parent / "kernels/types.def"
TYPES = "there are: " + ", ".join(
    line.split("(")[1].split(",")[0] for line in TYPES_DEF.read_text().splitlines()
    if line.startswith("PLM_TENSOR_TYPE(") and not line.endswith("NONE)"))


def run(*args):
    return subprocess.run([harness.BINARY, *args], capture_output=True, text=True, timeout=120)


def text(value):
    return struct.pack("<Q", len(value)) + value


def changed(old, new, data=None):
    data = TINY.read_bytes() if data is None else data
    same(data.count(old), 1)
    same(len(old), len(new))
    return data.replace(old, new)


def value_changed(key, old, new):
    return changed(text(key) + struct.pack("<I", 8) + text(old), text(key) + struct.pack("<I", 8) + text(new))


def type_changed(tensor, to):
    data = TINY.read_bytes()
    at = data.index(text(tensor)) + 8 + len(tensor)
    at += 4 + 8 * struct.unpack_from("<I", data, at)[0]
    return data[:at] + struct.pack("<I", to) + data[at + 4:]


# The file, and what is said of it.
BROKEN = {
    "arch": (value_changed(b"general.architecture", b"llama", b"lxama"),
             'architecture "lxama" is not supported (there are: gemma3, llama, mistral3, phi3, qwen2, qwen3, smollm3)'),
    "key": (changed(b"llama.block_count", b"llama.block_cxunt"), "key llama.block_count is missing"),
    "pre": (value_changed(b"tokenizer.ggml.pre", b"gpt-2", b"gpt-9"),
            'tokenizer.ggml.pre "gpt-9" is not supported (there are: gpt-2, mpt, smollm, starcoder, refact, falcon, '
            "llama-bpe, llama3, llama-v3, smaug-bpe, dbrx, glm4, chatglm-bpe, qwen2, deepseek-r1-qwen, qwen35, gpt-4o, "
            "llama4, tekken, kimi-k2, deepseek-llm, deepseek-coder, deepseek-v3)"),
    "tokenizer": (value_changed(b"tokenizer.ggml.model", b"gpt2", b"bert"),
                  'tokenizer.ggml.model "bert" is not supported (there are: gpt2, llama)'),
    "tensor": (changed(text(b"blk.0.ffn_up.weight"), text(b"blk.0.ffn_xp.weight")),
               "tensor blk.0.ffn_up.weight is missing"),
    # I32 is as large as F32, so that nothing else of the file is wrong.
    "type": (type_changed(b"blk.0.attn_norm.weight", 26),
             "tensor blk.0.attn_norm.weight has the type I32, which is not supported for a vector (there are: F32, F16, BF16)"),
    "cut": (TINY.read_bytes()[:-1000], "the file is truncated"),
}
# These can not even be read.
UNREADABLE = {
    "magic": (b"GGML" + TINY.read_bytes()[4:], "is not a GGUF file: it starts with 47 47 4d 4c (at byte 4)"),
    "empty": (b"", "is empty (at byte 0)"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "as a pointer of Git LFS does (git lfs pull fetches"),
    "page": (b"<!DOCTYPE html>\n", "as a web page does"),
    "older": (b"tjgg\3\0\0\0", "as a model of GGUF's predecessors does"),
    "unsized": (type_changed(b"blk.0.ffn_up.weight", 16),
                f'tensor "blk.0.ffn_up.weight" has type IQ2_XXS (id 16), which is not supported ({TYPES})'),
    "strange": (type_changed(b"blk.0.ffn_up.weight", 99), f"has type id 99, which is unknown ({TYPES})"),
    "header": (TINY.read_bytes()[:700], "is truncated"),
}


def each(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, why) in files.items():
            path = pathlib.Path(folder) / f"{name}.gguf"
            path.write_bytes(data)
            yield str(path), why


@case
def a_good_file_loads():
    done = run("inspect", str(TINY))
    same((done.returncode, done.stderr), (0, ""))
    check(done.stdout.endswith("\n\nloads here: yes\n"), done.stdout[-200:])
    told = json.loads(run("inspect", "--json", str(TINY)).stdout)
    same(told["loadable"], True)
    check("reason" not in told and "chat_template_error" not in told, told.keys())


@case
def what_can_not_be_loaded_says_why():
    for path, why in each(BROKEN):
        done = run("inspect", path)
        same((done.returncode, done.stderr), (0, ""))
        last = done.stdout.splitlines()[-1]
        check(last.startswith(f"loads here: no: {path}: ") and last.endswith(why), last)
        told = json.loads(run("inspect", "--json", path).stdout)
        same((told["loadable"], told["reason"]), (False, last.removeprefix("loads here: no: ")))


@case
def every_start_says_the_same():
    for path, why in each(BROKEN):
        reason = json.loads(run("inspect", "--json", path).stdout)["reason"]
        for args in (["run", "-p", "hi"], ["plan"], ["bench"]):
            done = run(*args, "-m", path)
            same(done.returncode, 1)
            same(done.stderr, f"plimsoll {args[0]}: {reason}\n")


@case
def what_can_not_be_read_is_named():
    for path, why in each(UNREADABLE):
        for args in (["inspect", path], ["run", "-p", "hi", "-m", path]):
            done = run(*args)
            same(done.returncode, 1)
            check(done.stderr.startswith(f"plimsoll {args[0]}: {path}: ") and why in done.stderr, done.stderr)


@case
def a_bad_template_is_said_and_the_file_loads():
    data = changed(b"{% for message in messages %}", b"{% fxr message in messages %}")
    for path, _ in each({"template": (data, "")}):
        lines = run("inspect", path).stdout.splitlines()
        check(lines[-2].startswith("chat template: cannot be used: ") and "fxr" in lines[-2], lines[-2])
        same(lines[-1], "loads here: yes")
        told = json.loads(run("inspect", "--json", path).stdout)
        same(told["loadable"], True)
        check("fxr" in told["chat_template_error"], told["chat_template_error"])
        done = run("run", "-m", path, "-p", "hi", "-n", "3", "--temp", "0")
        same(done.returncode, 0)
        check("the model has no chat template" in done.stderr, done.stderr)


main()
