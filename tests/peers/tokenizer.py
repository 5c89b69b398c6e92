#!/usr/bin/env python3
"""tokenizer.py: ids against Hugging Face `tokenizers` on DeepSeek's own tokenizer.json. One line per test.

    tokenizer.py --tok-ids FILE --dir SCRATCH [--seed N]
"""
import argparse
import glob
import os
import random
import struct
import subprocess
import sys

from tokenizers import Tokenizer

import deepseek_tok

ap = argparse.ArgumentParser()
ap.add_argument("--tok-ids", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--seed", type=int, default=20261201)
opt = ap.parse_args()
rnd = random.Random(opt.seed)
v41 = deepseek_tok.write_v41(os.path.join(opt.dir, "v41.json"))
plain = deepseek_tok.write_plain(os.path.join(opt.dir, "plain.json"))
peer, plain_peer = Tokenizer.from_file(v41), Tokenizer.from_file(plain)
failed = 0


def ours(texts, *mode):
    raw = [t.encode() for t in texts]
    p = subprocess.run([opt.tok_ids, v41, *mode], input=b"".join(struct.pack("<I", len(b)) + b for b in raw), capture_output=True, check=True)
    return [[int(i) for i in line.split()] for line in p.stdout.split(b"\n")[:-1]]


def compare(name, texts, matched=True):
    """@matched: added tokens in the text count as such."""
    global failed
    mine = ours(texts) if matched else ours(texts, "plain")
    theirs = [e.ids for e in (peer if matched else plain_peer).encode_batch_fast(texts, add_special_tokens=False)]
    bad = [i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b]
    size = sum(len(t.encode()) for t in texts)
    good = not bad and len(mine) == len(texts) and sum(map(len, mine)) > 0
    failed += not good
    print(f"{'' if good else 'not '}ok peers: {name}: {len(texts)} texts, {size} bytes, {sum(map(len, mine))} ids", flush=True)
    for i in bad[:3]:
        at = next((k for k, (a, b) in enumerate(zip(mine[i], theirs[i])) if a != b), 0)
        print(f"   text {i} {texts[i][:80]!r}: id {at}: {mine[i][at:at + 8]}, expected {theirs[i][at:at + 8]}")


def every(step, first, last):
    return [c for c in range(first, last, step) if not 0xd800 <= c < 0xe000]


def in_contexts(points):
    """Each character behind and before letters, digits, blanks, itself and a line end; 64 to a text."""
    return ["".join(f"a{chr(c)}b {chr(c)}1 {chr(c)}{chr(c)}\n({chr(c)} " for c in points[i:i + 64]) for i in range(0, len(points), 64)]


SCRIPTS = [(0x41, 0x5a), (0x61, 0x7a), (0xe0, 0xff), (0x3b1, 0x3c9), (0x430, 0x44f), (0x5d0, 0x5ea), (0x627, 0x64a), (0x905, 0x939), (0xe01, 0xe2e),
           (0x10d0, 0x10f0), (0x1200, 0x1248), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1f64f), (0x300, 0x36f)]
BETWEEN = [" ", " ", " ", "", "  ", "\n", "\r\n", "\n\n", "\t", ", ", ". ", "，", "。", "！", "-", "_", "'", "(", ")", "/", "1", "22", "4444", "\u3000", "\u00a0", "\u200b", "\x00", "\x85"]


def words(n):
    def word():
        a, b = rnd.choice(SCRIPTS)
        return "".join(chr(rnd.randint(a, b)) for _ in range(rnd.randint(1, 8)))
    return "".join(word() + rnd.choice(BETWEEN) for _ in range(n))


def noise(n):
    return "".join(chr(c) for c in (rnd.choice([rnd.randrange(0x80), rnd.randrange(0x800), rnd.randrange(0x3000), rnd.randrange(0x110000)]) for _ in range(n))
                   if not 0xd800 <= c < 0xe000)


library = os.path.dirname(os.__file__)
code = [open(f, encoding="utf-8", errors="replace").read() for f in sorted(glob.glob(os.path.join(library, "*.py")))[:60]]
specials = [a.content for a in peer.get_added_tokens_decoder().values()]

compare("every character of the two lowest planes, and some of the others", in_contexts(every(1, 0, 0x20000) + every(61, 0x20000, 0x110000)))
compare("words of many scripts", [words(rnd.randint(1, 60)) for _ in range(4000)])
compare("program text", code)
compare("random characters", [noise(rnd.randint(0, 80)) for _ in range(10000)])
compare("ASCII signs, digits and blanks", ["".join(rnd.choice("aB1 \t\n\r.,;:_-'\"()/=#@ ") for _ in range(rnd.randint(0, 60))) for _ in range(10000)])
compare("added tokens in text", ["".join(rnd.choice([rnd.choice(specials), words(1), rnd.choice("<|｜▁>")]) for _ in range(rnd.randint(1, 12))) for _ in range(4000)])
compare("what looks like added tokens, as text", ["".join(rnd.choice([rnd.choice(specials), words(1)]) for _ in range(rnd.randint(1, 6))) for _ in range(2000)], matched=False)
MB = 1000000
compare("long runs", ["=" * MB, " " * MB, "a" + "\u0301" * (MB // 2), "\n" * MB, "7" * MB, "漢" * (MB // 3), "🙂" * (MB // 4), "é" * (MB // 2), " " * MB + "1", "\t" * MB + "x",
                      "ab" * (MB // 2), "\r\n" * (MB // 2), ("=" * 63 + "-") * (MB // 64), "！" * (MB // 3), "\u200b" * (MB // 3)])
compare("long pieces", ["".join(rnd.choice(alphabet) for _ in range(MB)) for alphabet in ("abcdefghijklmnopqrstuvwxyz", "ABCdef", "ab", "=-", " \t", "\u0301\u0302a")])
sys.exit(failed > 0)
