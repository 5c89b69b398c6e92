#!/usr/bin/env python3
"""dsengine-engram-map: makes engram_token_map.bin, the classes of tokens that the Engram layers hash, from tokenizer.json.

    dsengine-engram-map TOKENIZER.json [OUTPUT]

OUTPUT is engram_token_map.bin beside TOKENIZER.json unless given.
Needs nothing but Python. The map depends on the tokenizer alone and is made once, beside the model's other files. For
the vocabulary of DeepSeek-V4.1 the result's sha256 is known and checked; a Python whose Unicode data gives another is
told so, and nothing is written.
"""
import array
import hashlib
import json
import os
import re
import sys
import unicodedata

# Source: value published with an independent implementation; the rule is that of the release's engram.py.
RELEASE = {"ids": 129280, "classes": 99092, "sha256": "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481"}
SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
BLANK = "\ue000"  # stands for a text that is one blank, so that stripping spares it


def byte_alphabet():
    """The characters in which tokenizer.json writes bytes (the table published with GPT-2), to their byte."""
    table, free = {}, 0x100
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            table[chr(b)] = b
        else:
            table[chr(free)] = b
            free += 1
    return table


def read(path):
    """Raw name of every id, and its text."""
    with open(path, encoding="utf-8") as f:
        t = json.load(f)
    names = {i: name for name, i in t["model"]["vocab"].items()}
    table = byte_alphabet()
    # A name with characters outside the alphabet is an added token's.
    texts = {i: bytes(table[c] for c in name).decode("utf-8", "replace") if all(c in table for c in name) else name
             for i, name in names.items()}
    for a in t.get("added_tokens") or []:
        names[a["id"]] = texts[a["id"]] = a["content"]
    missing = [i for i in range(len(names)) if i not in names]
    if missing:
        raise ValueError(f"no token has id {missing[0]}")
    return [names[i] for i in range(len(names))], [texts[i] for i in range(len(names))]


def key(name, text):
    if "\ufffd" in text:  # a piece of a character
        return name
    s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    # All marks, not only those without width; letter by letter, so that a final sigma is a sigma.
    s = "".join(c.lower() for c in s if unicodedata.category(c)[0] != "M")
    s = re.sub(r"[ \t\r\n]+", " ", s)
    s = (BLANK if s == " " else s).strip(SPACE).replace(BLANK, " ")
    return s or text


def classes(names, texts):
    """Equal keys share a number; numbers are given in the order of first appearance."""
    seen = {}
    return [seen.setdefault(key(n, t), len(seen)) for n, t in zip(names, texts)], len(seen)


def main(argv):
    if len(argv) not in (2, 3) or argv[1].startswith("-"):
        print("usage:", __doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 64
    source = argv[1]
    target = argv[2] if len(argv) > 2 else os.path.join(os.path.dirname(source), "engram_token_map.bin")
    try:
        found, n = classes(*read(source))
    except (OSError, ValueError, KeyError, TypeError) as e:
        print(f"dsengine-engram-map: read {source}: {e}", file=sys.stderr)
        return 1
    words = array.array("i", found)
    if sys.byteorder == "big":
        words.byteswap()
    data = words.tobytes()
    digest = hashlib.sha256(data).hexdigest()
    if len(found) == RELEASE["ids"] and digest != RELEASE["sha256"]:
        print(f"dsengine-engram-map: make a map of {source}: {n} classes and sha256 {digest}; the release has {RELEASE['classes']} and "
              f"{RELEASE['sha256']}\n        try: another Python (this one has Unicode {unicodedata.unidata_version}), or fetch tokenizer.json again",
              file=sys.stderr)
        return 1
    try:
        with open(target + ".part", "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(target + ".part", target)
    except OSError as e:
        print(f"dsengine-engram-map: write {target}: {e}", file=sys.stderr)
        return 1
    print(f"{target}: {len(found)} tokens, {n} classes, sha256 {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
