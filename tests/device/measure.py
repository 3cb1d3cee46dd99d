# SPDX-License-Identifier: Apache-2.0
"""The figures of tests/device/run: weights without meaning in the shapes of real models, through
plimsoll bench, beside the time that reading them alone would take (plimsoll bench --explain).
"""
import dataclasses
import json
import os
import shutil

from outcome import Failed

H100_READS = 3197.0  # GB/s, where no probe ran
READS_MIB = 4096     # of the probe: far beyond any cache
SHM = "/dev/shm"     # memory as a disk: a model is written once and read once


@dataclasses.dataclass(frozen=True)
class Case:
    shape: str
    mix: str
    prompts: str
    depth: int
    predict: int
    users: str
    sampled: str
    mixed: int
    repetitions: int
    batch: int
    seconds: int  # for all runs together

    @property
    def name(self):
        return f"{self.shape} {self.mix}"


def large(mix):
    return Case("llama-3.1-8b", mix, "512,4096", 1024, 64, "8,64", "1,64", 64, 3, 2048, 40)


LARGE = (large("q4_k"), large("q8_0"), large("bf16"))
SMALL = Case("smollm2-135m", "q4_0", "512,4096", 1024, 128, "8,64", "1,64", 64, 3, 2048, 20)
SMALL_ON_VULKAN = Case("smollm2-135m", "q4_0", "512", 1024, 128, "8", "0", 0, 3, 512, 20)
TINY = tuple(Case("small", mix, "8,24", 8, 3, "2", "2", 3, 1, 32, 30) for mix in ("q4_k", "q8_0", "bf16"))


def read_rate(run, device):
    size = 2 if run.fake else READS_MIB
    done = run.call([run.program("tests/device/reads"), device, size])
    run.result["read_gb_per_s"] = json.loads(done.stdout)["gb_per_s"]
    return f"{run.result['read_gb_per_s']:.1f} GB/s"


# ---- models ----

def path_of(run, case):
    folder = run.build
    if os.path.isdir(SHM) and shutil.disk_usage(SHM).free > 24 << 30:
        folder = type(run.build)(SHM)
    return folder / f"plimsoll-{case.shape}-{case.mix}.gguf"


def make_model(run, case):
    path = path_of(run, case)
    if path.exists():
        return path
    part = path.with_suffix(".part")
    try:
        run.call([run.program("tests/gguf_shapes"), case.shape, case.mix, part, "weights"])
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def forget(run, case):
    """Large models are made one after the other: there is room for one."""
    path_of(run, case).unlink(missing_ok=True)


# ---- the figures of one model ----

def unused(memory):
    """Shares of the device: the margin, and what beyond it nobody uses, in percent."""
    device = memory["devices"][0]
    total = device["total_bytes"]
    free = total - device["used_bytes"] - device["foreign_bytes"] - device["plan"]["own_drv"]
    return 100 * device["margin_bytes"] / total, 100 * free / total


def bench(run, case, device):
    model = make_model(run, case)
    program = run.program("tools/plimsoll")
    # What it measured before it failed, it says.
    done = run.call(
        [program, "bench", "-m", model, "--device", device, "--json", "-p", case.prompts, "-n", case.predict, "-d",
         case.depth, "-r", case.repetitions, "--users", case.users, "--sampled", case.sampled, "--mixed", case.mixed,
         "-b", case.batch, "--seconds", case.seconds], good=(0, 1))
    failure = done.stderr.strip()[-500:]
    if not done.stdout.strip():
        raise Failed(failure)
    measured = json.loads(done.stdout)
    rate = run.result.get("read_gb_per_s", H100_READS)
    kind = device.split(":")[0]
    explained = json.loads(run.call(
        [program, "bench", "--explain", "-m", model, "--device", kind, "--json", "-c",
         case.depth + case.predict // 2, "--bandwidth", rate]).stdout)["step"]
    margin, free = unused(measured["memory"])
    row = {"model": case.name, "device": device, "bound_gb_per_s": rate, "bound_ms": explained["seconds"] * 1e3,
           "weights_ms": explained["weight_seconds"] * 1e3, "dispatches": explained["dispatches"],
           "barriers": explained["barriers"], "file_bytes": measured["model"]["file_bytes"],
           "load_seconds": measured["load_seconds"], "ready_seconds": measured["ready_seconds"],
           "margin_percent": margin, "unused_percent": free, "cases": measured["cases"]}
    run.result["bench"].append(row)
    decode = one(row, "decode", 1)
    if decode is None or decode["tokens_per_second"] <= 0:
        raise Failed("nothing was decoded")
    row["share_of_weights"] = row["weights_ms"] / 1e3 * decode["tokens_per_second"]
    if done.returncode != 0:
        raise Failed(f"after {len(row['cases'])} cases: {failure}")
    return f"decode {decode['tokens_per_second']:.1f} tokens/s, {row['share_of_weights']:.1%} of the weights' floor"


# ---- the table ----

def one(row, name, number):
    """A case by its name and its users, or its prompt's tokens."""
    for case in row["cases"]:
        if case["name"] == name and number in (case["users"] if name != "prompt" else case["prompt_tokens"],):
            return case
    return None


def table(run):
    use = run.result.get("use")
    if use:
        print(f"\nan engine that may have all of the card leaves {use['free_bytes'] / 2**20:.0f} MiB of it, "
              f"{use['free_percent']:.2f} %, of which {use['margin_bytes'] / 2**20:.0f} MiB are the margin")
    if not run.result["bench"]:
        return
    rate = run.result.get("read_gb_per_s")
    print(f"\nfloor: what a decode step of one sequence reads of weights (plimsoll bench --explain) at "
          f"{rate or H100_READS:.1f} GB/s, {'measured here' if rate else 'an H100 as measured'}; tokens per second")
    for row in run.result["bench"]:
        load = row["file_bytes"] / 1e9 / max(row["load_seconds"], 1e-9)
        print(f"\n{row['model']} on {row['device']}: {row['dispatches']} dispatches, {row['barriers']} barriers a step; "
              f"loaded in {row['load_seconds']:.1f} s ({load:.1f} GB/s), READY after {row['ready_seconds']:.1f} s; "
              f"margin {row['margin_percent']:.2f} %, unused {row['unused_percent']:.2f} % of the device")
        for case in row["cases"]:
            rate_of = case["tokens_per_second"]
            what = {"prompt": f"prompt of {case['prompt_tokens']}",
                    "decode": f"decode at {case['prompt_tokens']}",
                    "users": f"{case['users']} decode at {case['prompt_tokens']}",
                    "sampled": f"{case['users']} sampled at {case['prompt_tokens']}",
                    "mixed": f"{case['users']} mixed, up to {case['prompt_tokens']}"}[case["name"]]
            share = ""
            if case["name"] in ("decode", "users", "sampled"):
                steps = rate_of / case["users"]
                share = f"{1e3 / steps:9.3f} ms a step, {row['weights_ms'] / 1e3 * steps:6.1%} of the floor"
            elif case["name"] == "mixed":
                share = (f"and {case['prompt_tokens_per_second']:.0f} of prompts; half had a first token after "
                         f"{case['first_token_seconds']:.2f} s")
            print(f"  {what:<28} {rate_of:11.1f}  {share}")
