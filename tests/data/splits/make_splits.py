#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes texts and the words into which each pre-tokenizer rule cuts them, by PyPI `regex` with the
expressions that the makers of the models publish:

    make_splits.py                         the committed file (splits.jsonl)
    make_splits.py --random COUNT SEED     so many random texts
    make_splits.py --every                 every character beside others
    make_splits.py --texts FILE.jsonl...   the member "text" of each line
    make_splits.py ... --check PROGRAM     gives them to the program `splits` instead

One JSON object a line (lines end at LF only). The first one has "rules": for each expression the
names of the rules that have it. The others have "text", and in "splits" for each expression the bytes
of each word. Exit 77 where `regex` is missing.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import unicodedata

try:
    import regex
except ImportError:
    python = os.environ.get("PLIMSOLL_E2E_PYTHON", sys.executable)
    if python != sys.executable:
        os.execv(python, [python, *sys.orig_argv[1:]])
    print("the Python package regex is missing; tools/check installs it")
    sys.exit(77)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Both halves of a cased word. An intersection &&[^\p{Han}] is written as a lookahead, which is the
# same: `regex` knows && only in a mode that also folds case in another way.
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CASED = "{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"
GPT4O = (
    CASED.format(lead=LEAD, upper=UPPER, lower=LOWER, ending=ENDING)
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    CASED.format(lead=LEAD, upper=UPPER, lower=LOWER, ending="")
    + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI_K2 = (
    r"[\p{Han}]+|"
    + CASED.format(lead=LEAD, upper=r"(?:(?!\p{Han})%s)" % UPPER, lower=r"(?:(?!\p{Han})%s)" % LOWER, ending=ENDING)
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WIDE_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
LISTED = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    r"\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    r"\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    r"\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    r"\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    r"\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    r"\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    r"\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    r"\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    r"\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Under the names of tokenizer.ggml.pre the expressions that are applied in turn, each to the pieces
# into which the ones before cut the text: what they found, and what lay between that. The rule of
# files without a name is the empty one. Falcon looks for digits in its alphabet of bytes, where six
# bytes that are no digits of ASCII count, too; its vocabulary never joins those to other bytes.
RULES = {
    "gpt-2,mpt,": [GPT2],
    "smollm,starcoder,refact": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, r"[0-9]+", r"[0-9][0-9][0-9]"],
    "llama-bpe,llama3,llama-v3,smaug-bpe,dbrx,glm4,chatglm-bpe": [CL100K % r"\p{N}{1,3}"],
    "qwen2,deepseek-r1-qwen": [CL100K % r"\p{N}"],
    "qwen35": [QWEN35],
    "gpt-4o,llama4": [GPT4O],
    "tekken": [TEKKEN],
    "kimi-k2": [KIMI_K2],
    "deepseek-llm": [
        r"[\r\n]", r"\s?[%s]+" % LISTED, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$", WIDE_CJK, r"\p{N}",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", WIDE_CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_V3],
}
COMPILED = {names: [regex.compile(stage) for stage in stages] for names, stages in RULES.items()}


def cut(stage, piece):
    """What an expression finds in a piece, and what lies between that."""
    at = 0
    for match in stage.finditer(piece):
        if match.start() > at:
            yield piece[at:match.start()]
        yield match.group()
        at = match.end()
    if at < len(piece):
        yield piece[at:]


def split(stages, text):
    pieces = [text]
    for stage in stages:
        pieces = [part for piece in pieces for part in cut(stage, piece)]
    return [len(piece.encode()) for piece in pieces]


# White space, and what is often mistaken for it.
SPACES = " \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2003\u2028\u2029\u200b\u202f\u205f\u3000\ufeff"
WORDS = (
    "don't I'LL we'Re they'vE '\u017fs '\u017f o'd 'M 'S's can''t 3.14159 1234567 \u00bd\u00b2 \u2167"
    " \u0663\u0664\u0665 12a3b __init__ x==y!= http://a.b/c?d=e Stra\u00dfe \u041f\u0440\u0438"
    " \u4f60\u597d \u3053\u3093 \uc548\ub155 \U0001f642\U0001f469\u200d\U0001f467 e\u0301\u0301"
    " \u0e01\u0e33 \u0915\u093c A\u030a \U0001d7d8 \U00010400 HTTPServer iPhone McDonald's ABC'S"
    " \u01c5en \u02b0a \u0301AB \u0301 \u3007\u5e74 \u4e2dA\u4e2d \u30ab\u30bf\u30ab\u30ca\u6f22\u5b57"
    " \uff21\uff42\uff0c\uff01 \u2018q\u2019 a/b// ?/\n \u212a\u2126\u1f7d \u10d0\u10d1 $x #y @z"
).split(" ")


def known_code_points():
    """Those that Python's Unicode 14 and `regex` sort alike, and those that both leave unassigned:
    whatever Unicode between the two a program has, it must agree. None is a surrogate."""
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF)
    names = ("Lu", "Lt", "Ll", "Lm", "Lo", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cn")
    return [ord(c) for run in regex.finditer("|".join(r"(?P<%s>\p{%s}+)" % (name, name) for name in names), every)
            for c in run.group() if unicodedata.category(c).startswith(run.lastgroup)]


def near(draw, known):
    """A few code points of one place, so that scripts, their marks, digits and signs meet."""
    at = draw.randrange(len(known))
    width = draw.choice((4, 40, 400))
    return [chr(known[(at + draw.randrange(width)) % len(known)]) for _ in range(draw.randrange(1, 9))]


def random_text(draw, known):
    parts = []
    for _ in range(draw.randrange(1, 12)):
        kind = draw.randrange(10)
        if kind == 0:
            parts.append(draw.choice(WORDS))
        elif kind == 1:
            parts.append(draw.choice(SPACES) * draw.choice((1, 1, 2, 3, 9)))
        elif kind == 2:
            parts.append("".join(draw.choice(" \n\r\t") for _ in range(draw.randrange(1, 6))))
        elif kind == 3:
            parts.append("".join(draw.choice("0123456789\u0663\u00b2\u2167") for _ in range(draw.randrange(1, 8))))
        elif kind == 4:
            parts.append("'" + draw.choice(("s", "T", "rE", "VE", "m", "lL", "D", "\u017f", "x", "l", "", "S\u0301")))
        elif kind == 5:
            parts.append("".join(chr(draw.randrange(32, 127)) for _ in range(draw.randrange(1, 9))))
        elif kind == 6:
            parts.append("".join(draw.choice("aBcD\u01c5\u02b0\u4e2d\u0301\u0915\u30ab") for _ in range(draw.randrange(1, 9))))
        elif kind == 7:
            parts.append("".join(draw.choice(".,;:!?/\\-_()[]{}<>$+=~^|`\u2019\uff01\u20ac") for _ in range(draw.randrange(1, 5))))
        else:
            parts += near(draw, known)
        if draw.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def random_texts(count, seed):
    draw = random.Random(seed)
    known = known_code_points()
    for _ in range(count):
        yield random_text(draw, known)


def every_texts():
    """Each code point, doubled and between letters of both cases, a digit, a sign and white space. Of
    those without a character, of which there are runs of thousands, every 64th."""
    known = [code for code in known_code_points()
             if code % 64 == 0 or unicodedata.category(chr(code)) not in ("Cn", "Co")]
    for at in range(0, len(known), 16):
        yield "".join("a{0} {0}B{0}1{0}.{0}{0}\n".format(chr(code)) for code in known[at:at + 16])


def fixed_texts():
    draw = random.Random(20261128)
    known = known_code_points()
    yield from ("", " ", "\n", "  \n", "  a", "\t\ta", "a \n b", "1 2  3   4", "a   1", "\r\n\r\n x",
                "a\x00b", "  \u3000 \u3000", "x  \u4e2d  ", "\u00a0\u00a0a", "a \u00a0\u2003")
    for word in WORDS:
        yield word
        yield " " + word + "  " + word
    for _ in range(250):
        yield random_text(draw, known)


def texts_of(paths):
    for path in paths:
        with open(path, "rb") as file:
            for line in file.read().split(b"\n"):
                if line:
                    yield json.loads(line)["text"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", nargs=2, type=int, metavar=("COUNT", "SEED"))
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--texts", nargs="+", metavar="FILE")
    parser.add_argument("--check", metavar="PROGRAM")
    args = parser.parse_args()
    if args.random:
        texts = random_texts(*args.random)
    elif args.every:
        texts = every_texts()
    else:
        texts = texts_of(args.texts) if args.texts else fixed_texts()
    judge = subprocess.Popen([args.check, "-"], stdin=subprocess.PIPE) if args.check else None
    out = judge.stdin if judge else sys.stdout.buffer

    def write(line):
        out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    write({"rules": list(RULES)})
    for text in texts:
        write({"text": text, "splits": [split(stages, text) for stages in COMPILED.values()]})
    if judge is None:
        return 0
    judge.stdin.close()
    return judge.wait()


if __name__ == "__main__":
    sys.exit(main())
