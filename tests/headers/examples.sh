#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a scratch prefix, builds examples/ with what pkg-config says, shared and static, and
# runs the first one on a tiny model. Usage: examples.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$work/root"
pc=$(find "$work/root" -name plimsoll.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
# Who links the shared library sees nothing of what it was made from; a static link, libraries alone.
include=$(dirname "$(find "$work/root" -name plimsoll.h)")
for flag in $(pkg-config --cflags --libs plimsoll); do
    case $flag in
    "-I$include" | "-L$libdir" | -lplimsoll) ;;
    *) echo "pkg-config leaks $flag" >&2 && exit 1 ;;
    esac
done
for flag in $(pkg-config --static --cflags --libs plimsoll); do
    case $flag in
    "-I$include" | -L* | -l* | -pthread) ;;
    *) echo "pkg-config --static leaks $flag" >&2 && exit 1 ;;
    esac
done
for example in completion poll_loop bad_device; do
    # shellcheck disable=SC2046 # words are wanted
    cc -std=c99 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L "$source/examples/$example.c" \
        $(pkg-config --cflags --libs plimsoll) -o "$work/$example"
done
for example in completion poll_loop; do
    LD_LIBRARY_PATH=$libdir "$work/$example" "$source/tests/data/models/llama-tied-q4_0.gguf" "hello" >"$work/out"
    grep -q . "$work/out"
done
# From Python, too, in a file that can be read at a glance.
LD_LIBRARY_PATH=$libdir python3 "$source/examples/plimsoll.py" "$source/tests/data/models/llama-tied-q4_0.gguf" "hello" >"$work/out"
grep -q '^generated_tokens [1-9]' "$work/out"
if LD_LIBRARY_PATH=$libdir python3 "$source/examples/plimsoll.py" /nonexistent "hello" 2>"$work/out"; then
    echo "a model that is not there started" >&2
    exit 1
fi
grep -q '(model_path)$' "$work/out"
LD_LIBRARY_PATH=$libdir python3 "$source/examples/plimsoll.py" 2>"$work/out" || true
grep -q '^Completes one prompt from Python, as in: ' "$work/out"
[ "$(wc -l <"$source/examples/plimsoll.py")" -lt 60 ]
# A device that is lost halfway gives the same text; one that is too small says so.
LD_LIBRARY_PATH=$libdir "$work/bad_device" "$source/tests/data/models/llama-tied-q4_0.gguf" \
    "$source/examples/bad_device.world" >"$work/out"
grep -q 'bad_device.world: .* lost 1 times' "$work/out"
printf 'plimsoll-world 1\ndevice capacity 1MiB\n' >"$work/small.world"
if LD_LIBRARY_PATH=$libdir "$work/bad_device" "$source/tests/data/models/llama-tied-q4_0.gguf" \
    "$work/small.world" 2>"$work/out" >&2; then
    echo "a device of 1 MiB started" >&2
    exit 1
fi
grep -q 'small.world: ' "$work/out"
# shellcheck disable=SC2046
cc -std=c99 -D_POSIX_C_SOURCE=200809L "$source/examples/completion.c" \
    $(pkg-config --cflags plimsoll) "$libdir/libplimsoll.a" \
    $(pkg-config --static --libs plimsoll | sed 's/-lplimsoll//') -o "$work/static"
"$work/static" "$source/tests/data/models/llama-tied-q4_0.gguf" "hello" >/dev/null
