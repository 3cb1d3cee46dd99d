#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes splits.jsonl: texts and the words into which each pre-tokenizer rule cuts them, by PyPI
`regex` with the regular expressions of the models' own tokenizer.json files.

Lines end at LF only. Usage: make_splits.py > splits.jsonl
"""
import json
import random
import sys
import unicodedata

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def smollm(text):
    """Single digits first, then the rule of GPT-2 on what lies between them."""
    words = []
    for part in regex.split(r"(\p{N})", text):
        words += regex.findall(GPT2, part)
    return words


RULES = {
    "gpt-2": lambda text: regex.findall(GPT2, text),
    "smollm": smollm,
    "qwen2": lambda text: regex.findall(CL100K % r"\p{N}", text),
    "llama-bpe": lambda text: regex.findall(CL100K % r"\p{N}{1,3}", text),
}

# White space, and what is often mistaken for it.
SPACES = " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2003\u2028\u2029\u200b\u202f\u205f\u3000\ufeff"
WORDS = (
    "don't I'LL we'Re they'vE '\u017fs '\u017f o'd 'M 'S's can''t 3.14159 1234567 \u00bd\u00b2 \u2167"
    " \u0663\u0664\u0665 12a3b __init__ x==y!= http://a.b/c?d=e Stra\u00dfe \u041f\u0440\u0438"
    " \u4f60\u597d \u3053\u3093 \uc548\ub155 \U0001f642\U0001f469\u200d\U0001f467 e\u0301\u0301"
    " \u0e01\u0e33 \u0915\u093c A\u030a \U0001d7d8 \U00010400"
).split(" ")


def texts():
    draw = random.Random(20261128)
    # Python 3.11 knows Unicode 14, as PCRE2 10.42 does; what `regex` sorts otherwise is left out.
    known = [
        code
        for code in range(0x110000)
        if not 0xD800 <= code <= 0xDFFF
        and (category := unicodedata.category(chr(code))) not in ("Cn", "Co")
        and bool(regex.match(r"\p{L}", chr(code))) == (category[0] == "L")
        and bool(regex.match(r"\p{N}", chr(code))) == (category[0] == "N")
    ]
    yield from ("", " ", "\n", "  \n", "  a", "\t\ta", "a \n b", "1 2  3   4", "a   1", "\r\n\r\n x")
    for word in WORDS:
        yield word
        yield " " + word + "  " + word
    for _ in range(60):
        count = draw.randrange(2, 14)
        yield "".join(draw.choice([draw.choice(WORDS), draw.choice(SPACES), " "]) for _ in range(count))
        yield "".join(draw.choice([draw.choice(SPACES), draw.choice("ab1!'s")]) for _ in range(count))
        yield "".join(chr(draw.randrange(32, 127)) for _ in range(count * 2))
        yield "".join(chr(draw.choice([draw.choice(known), 32, 49, 39, 97])) for _ in range(count))


def main():
    for text in texts():
        line = {"text": text}
        for rule, split in RULES.items():
            line[rule] = split(text)
            assert "".join(line[rule]) == text
        sys.stdout.buffer.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main()
