#!/usr/bin/env python3
"""tokenizer_speed.py: how fast texts become ids, here and in Hugging Face `tokenizers`, one thread each, in turn.

    tokenizer_speed.py --tok-speed FILE --dir SCRATCH

DeepSeek's vocabulary; processor time, since others use the machine as well. The least of three runs each (one of theirs
on the runs); the number of ids must agree. Text is Python's own library and manual, words of many scripts, and runs that
a quadratic tokenizer would never finish, of 1 and 4 MB. Exit 1 if ordinary text is below 5 MB/s, or any slower than
theirs. The last line is JSON.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  the variable comes first

import deepseek_tok  # noqa: E402

ap = argparse.ArgumentParser()
ap.add_argument("--tok-speed", required=True)
ap.add_argument("--dir", required=True)
opt = ap.parse_args()
v41 = deepseek_tok.write_v41(os.path.join(opt.dir, "v41.json"))
peer = Tokenizer.from_file(v41)
rnd = random.Random(1)
library = os.path.dirname(os.__file__)
MB = 1000000


def words(a, b, n):
    return "".join("".join(chr(rnd.randint(a, b)) for _ in range(rnd.randint(1, 7))) + rnd.choice([" ", " ", "，"]) for _ in range(n))


def letters(alphabet, n):
    return "".join(rnd.choices(alphabet, k=n))


scripts = [(0x4e00, 0x9fa5), (0x430, 0x44f), (0x3041, 0x3096), (0xac00, 0xd7a3), (0x627, 0x64a), (0x915, 0x939), (0xe01, 0xe2e)]
ordinary = {
    "code": "".join(open(f, encoding="utf-8", errors="replace").read() for f in sorted(glob.glob(library + "/*.py")))[:3 * MB],
    "English": open(library + "/pydoc_data/topics.py", encoding="utf-8").read().replace("\\n", "\n"),
    "many scripts": "".join(words(*rnd.choice(scripts), 20) + "\n" for _ in range(6000)),
}
hard = {f"{name}, {n} MB": make(n * MB) for n in (1, 4) for name, make in {
    "=": lambda n: "=" * n,
    "blanks": lambda n: " " * n,
    "combining marks": lambda n: "a" + "\u0301" * (n // 2),
    "line feeds": lambda n: "\n" * n,
    "letters": lambda n: letters("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", n),
    "two letters": lambda n: letters("ab", n),
    "digits": lambda n: letters("0123456789", n),
}.items()}


def ours(raw):
    out = subprocess.run([opt.tok_speed, v41, "3"], input=raw, capture_output=True, check=True).stdout.split()
    return float(out[0]), int(out[1])


def theirs(text, times):
    best, n = 1e9, 0
    for _ in range(times):
        begin = time.process_time()
        n = len(peer.encode(text, add_special_tokens=False).ids)
        best = min(best, time.process_time() - begin)
    return best, n


bad, rows = [], []
print(f"{'text':24} {'MB':>5} {'MB/s':>7} {'tokenizers':>10} {'ratio':>6}")
for name, text in {**ordinary, **hard}.items():
    raw = text.encode()
    mine, ids = ours(raw)
    other, other_ids = theirs(text, 3 if name in ordinary else 1)
    size = len(raw) / MB
    rows.append({"text": name, "mb": round(size, 2), "mb_s": round(size / mine, 2), "tokenizers_mb_s": round(size / other, 2)})
    print(f"{name:24} {size:5.2f} {size / mine:7.2f} {size / other:10.2f} {other / mine:6.1f}", flush=True)
    if ids != other_ids:
        bad.append(f"{name}: {ids} ids, expected {other_ids}")
    if mine > other or (name in ordinary and size / mine < 5):
        bad.append(f"{name}: too slow")
print(json.dumps({"bench": "tokenizer", "rows": rows}))
print(*bad, sep="\n", file=sys.stderr)
sys.exit(bool(bad))
