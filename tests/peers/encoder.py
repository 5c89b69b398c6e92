#!/usr/bin/env python3
"""encoder.py: prompts of random conversations against DeepSeek's own encoder (the package deepseek-recipe).

    encoder.py --chat-ids FILE --dir SCRATCH [--count N] [--seed N]

Both get the same body; text and ids must be equal. What the other encoder refuses is left out, but must be rare.
Prints one line per test.
"""
import argparse
import hashlib
import json
import os
import random
import subprocess
import sys

import deepseek_recipe as recipe

import deepseek_tok

ap = argparse.ArgumentParser()
ap.add_argument("--chat-ids", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--count", type=int, default=1500)
ap.add_argument("--seed", type=int, default=20261201)
opt = ap.parse_args()
rnd = random.Random(opt.seed)
IMAGE = "<｜deepseek_image｜>"

WORDS = ("the link rail json is up down \n \n\n  7 42 3.14 naïve 漢字 かな зима مرحبا 🙂 👩‍👩‍👧 // \\n \" ' <b> </a> &amp; {} [] _x (y) "
         "tab\t end. a,b; 1234567 ² Ⅷ — “quoted” x=1 == ==== \r\n İ ﬁ e\u0301 \u200b \u3000 ```c``` <tool_result> </tool_result>").split(" ")


def text(most=12):
    return "".join(rnd.choice(WORDS) + rnd.choice(["", " ", " ", " "]) for _ in range(rnd.randint(0, most)))


def some(most=12):
    return text(most) or "json"


def value(depth=0):
    kinds = ["s", "s", "i", "f", "b", "n"] + (["l", "o"] if depth < 3 else [])
    kind = rnd.choice(kinds)
    if kind == "s":
        return text(6)
    if kind == "i":
        return rnd.choice([0, 1, -1, 2**53 + 1, 2**63 - 1, -2**63, 2**64 - 1, rnd.randint(-10**6, 10**6)])
    if kind == "f":
        return rnd.choice([0.0, -0.0, 1.0, 1e-05, 1e16, 1e15, 0.1, 123456.789, 5e-324, rnd.random(), rnd.random() * 10**rnd.randint(-20, 20)])
    if kind == "l":
        return [value(depth + 1) for _ in range(rnd.randint(0, 3))]
    if kind == "o":
        return {some(2): value(depth + 1) for _ in range(rnd.randint(0, 3))}
    return rnd.choice([True, False]) if kind == "b" else None


def wire(v):
    """JSON as a client may send it: any spacing, escapes or not."""
    return json.dumps(v, ensure_ascii=rnd.random() < .5, separators=rnd.choice([(",", ":"), (", ", ": ")]))


def tool(i):
    return {"type": "function", "function": {"name": f"f{i}", "description": text(), "parameters": {
        "type": "object", "properties": {k: {"type": rnd.choice(["string", "integer"]), "default": value(1)} for k in "abc"[:rnd.randint(0, 3)]},
        "required": ["a"]}}}


def content(empty=True):
    s = text() if empty else some()
    if rnd.random() < .7:
        return s
    return [{"type": "text", "text": p} for p in ([s] + [some(4) for _ in range(rnd.randint(0, 2))])]


def calls(n_tool, serial):
    return [{"id": f"call_{serial}_{k}", "type": "function", "function": {
        "name": f"f{rnd.randrange(n_tool)}", "arguments": wire({some(2).replace('"', ""): value() for _ in range(rnd.randint(0, 3))})}}
        for k in range(rnd.randint(1, 3))]


def conversation():
    n_tool = rnd.choice([0, 0, 1, 3])
    messages = [{"role": "system", "content": content(False)}] if rnd.random() < .6 else []  # theirs leaves an empty one out
    for turn in range(rnd.randint(1, 4)):
        messages += [{"role": "user", "content": content(False)} for _ in range(rnd.choice([1, 1, 1, 2]))]
        if rnd.random() < .15:
            messages.append({"role": "system", "content": some()})
        for step in range(rnd.choice([0, 0, 1, 2]) if n_tool else 0):
            made = calls(n_tool, f"{turn}_{step}")
            messages.append({"role": "assistant", "content": rnd.choice([None, "", some()]), "tool_calls": made})
            results = [{"role": "tool", "tool_call_id": c["id"], "content": content()} for c in made]
            rnd.shuffle(results)
            messages += results
        if rnd.random() < .9:
            messages.append({"role": "assistant", "content": some()})
    for m in messages:
        if m["role"] == "assistant" and rnd.random() < .7:
            m["reasoning_content"] = text()
    while messages[-1]["role"] == "assistant" and rnd.random() < .9:
        messages.pop()
    body = {"messages": messages}
    if n_tool:
        body["tools"] = [tool(i) for i in range(n_tool)]
    if rnd.random() < .6:
        body["thinking"] = {"type": rnd.choice(["enabled", "disabled", "disabled"])}
    chat = body.get("thinking", {}).get("type") == "disabled"
    if not chat and rnd.random() < .4:
        body["reasoning_effort"] = rnd.choice(["low", "high", "max"])
    if messages[-1]["role"] == "assistant":
        messages[-1]["prefix"] = True
    elif n_tool and chat and rnd.random() < .5:  # theirs refuses a forced call in thinking mode
        body["tool_choice"] = rnd.choice(["auto", "required"])  # a named one leaves its tool alone in their prompt
    elif rnd.random() < .3:
        body["response_format"] = {"type": "json_object"}
        messages[-1]["content"] = "json, please"
    return body


class Theirs:
    def __init__(self, model, encoding, tokenizer):
        special = recipe.SpecialTokens(image=IMAGE)
        self.model = model
        self.options = recipe.ConversionOptions().with_special_tokens(special)
        self.encoding = encoding.with_special_tokens(special).with_tokenizer(recipe.Tokenizer.from_file(tokenizer))

    def __call__(self, body):
        try:
            made = recipe.ChatCompletionRequest(dict(body, model=self.model)).convert(self.options).conversation
        except recipe.ConversionError as e:
            return str(e.body), None
        return self.encoding.render_conversation(made).prompt, self.encoding.encode(made)


EFFORT = "77666 288 9504 482 28 223 {} 343 16801 223 19 15 1457 14 270 4077 270 1990 14 270 850 15146 270 22805 868"
WEATHER = {"name": "get_weather", "description": "Weather now", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}


def said(role, what, **more):
    return dict(role=role, content=what, **more)


def weather(call, city):
    return {"id": call, "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"city": city, "days": 2})}}


ROUND = [said("system", "Be brief."), said("user", "Paris and Rome?"),
         said("assistant", "Checking.", reasoning_content="need both", tool_calls=[weather("a", "Paris"), weather("b", "Rome")]),
         said("tool", "24C", tool_call_id="b"), said("tool", "19C", tool_call_id="a")]
CHAT = {"think": False}
TOOLS = {"tools": [{"type": "function", "function": WEATHER}]}
NOW = {"id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
# Body, and the ids that the release's notes give for it; where they are many, how many, and the begin of the text's sha256.
EXAMPLES = [
    (dict(CHAT, messages=[said("system", "Be brief."), said("user", "Hi")]), "0 128799 7153 9708 16 128803 23166 128804 128822"),
    (dict(messages=[said("system", "Be brief."), said("user", "Hi")]), f"0 128799 {EFFORT.format(2402)} 7153 9708 16 128803 23166 128804 128821"),
    (dict(reasoning_effort="max", messages=[said("user", "Hi")]), f"0 128799 {EFFORT.format(1457)} 128803 23166 128804 128821"),
    (dict(messages=[said("user", "Q1"), said("assistant", "A1", reasoning="r"), said("user", "Q2")]),
     f"0 128799 {EFFORT.format(2402)} 128803 51 19 128804 128822 35 19 1 128803 51 20 128804 128821"),
    (dict(CHAT, messages=[said("user", "Q1"), said("assistant", "A1"), said("system", "Answer in French from now on.")]),
     "0 128803 51 19 128804 128822 35 19 1 128799 7805 295 7213 538 1928 377 16 128804 128822"),
    (dict(CHAT, response_format={"type": "json_object"}, messages=[said("system", "S"), said("user", "Q1")]),
     "0 128799 53 271 372 17038 29478 979 3476 74366 29851 42917 304 270 2502 37913 304 20430 1137 24313 4611 3362 582 14479 55774 62773 "
     "128803 51 19 128804 128822"),
    (dict(TOOLS, messages=ROUND), (428, "901037f1298f02db")),
    (dict(TOOLS, messages=ROUND + [said("assistant", "19C and 24C.", reasoning_content="got it"), said("user", "Thanks")]), (443, "3d039f239cfa08f4")),
    (dict(CHAT, add_generation_prompt=False, messages=[said("user", "Q"), said("assistant", None, tool_calls=[NOW])]),
     "0 128803 51 128804 128822 271 30 128825 10699 1018 30 128825 34756 2329 1281 949 32572 1718 128825 34756 1018 1718 128825 10699 32 1"),
]


def ours(bodies, tokenizer):
    out = subprocess.run([opt.chat_ids, tokenizer], input="".join(json.dumps(b) + "\n" for b in bodies).encode(), capture_output=True, check=True).stdout
    out = [json.loads(line) for line in out.split(b"\n") if line]
    assert len(out) == len(bodies)
    return out


def examples(tokenizer):
    bad, got = [], ours([body for body, _ in EXAMPLES], tokenizer)
    for i, ((_, want), made) in enumerate(zip(EXAMPLES, got)):
        ids, text = made.get("ids", []), made.get("text", "")
        if isinstance(want, str) and " ".join(map(str, ids)) != want or not isinstance(want, str) and (
                len(ids), hashlib.sha256(text.encode()).hexdigest()[:16]) != want:
            bad.append((i + 1, ids[:80], made.get("error")))
    extends = got[7]["ids"][:428] == got[6]["ids"]
    print(f"{'not ' if bad or not extends else ''}ok peers: {len(EXAMPLES)} worked examples to the id", *bad, sep="\n   ")
    return not bad and extends


def compare(name, theirs, tokenizer, fits):
    bodies = [b for b in (conversation() for _ in range(opt.count)) if fits(b)]
    got, equal = ours(bodies, tokenizer), 0
    refused, different = {}, []
    for body, made in zip(bodies, got):
        prompt, ids = theirs(body)
        if ids is None:
            why = prompt[:140]
            refused[why] = refused.get(why, 0) + 1
        elif made.get("text") == prompt and made["ids"] == ids:
            equal += 1
        else:
            different.append((body, made, prompt))
    good = not different and equal > len(bodies) // 2
    print(f"{'' if good else 'not '}ok peers: {name}: {equal} prompts equal DeepSeek's encoder, text and ids "
          f"({sum(refused.values())} that it refuses)")
    if not good:
        for body, made, prompt in different[:3]:
            text = made.get("text", str(made))
            at = next((i for i, (a, b) in enumerate(zip(text, prompt)) if a != b), min(len(text), len(prompt)))
            print(f"   {json.dumps(body, ensure_ascii=False)[:1500]}\n   at character {at}: ours {text[max(0, at - 40):at + 80]!r}, "
                  f"theirs {prompt[max(0, at - 40):at + 80]!r}")
        for why, n in sorted(refused.items(), key=lambda x: -x[1])[:6]:
            print("   refused", n, why)
    return good


def has_float(v):
    return isinstance(v, float) or isinstance(v, (dict, list)) and any(map(has_float, v.values() if isinstance(v, dict) else v))


def fits_v4(body):
    """Theirs is the later V4 Pro: its higher efforts (low has none in both) and its response format have other texts, it
    puts every system message to the front, and a call has no empty line for no arguments and other digits for floats."""
    made = [json.loads(c["function"]["arguments"]) for m in body["messages"] for c in m.get("tool_calls", [])]
    return ((body.get("thinking", {}).get("type") == "disabled" or body.get("reasoning_effort") == "low") and "response_format" not in body
            and all(m["role"] != "system" for m in body["messages"][1:])
            and not has_float(body.get("tools")) and all(a and not has_float(a) for a in made))


v41 = deepseek_tok.write_v41(os.path.join(opt.dir, "v41.json"))
good = [
    compare("V4.1", Theirs("DeepSeek-V4.1-Flash", recipe.DeepseekV41Encoding(), v41), v41, lambda b: True),
    compare("V4", Theirs("DeepSeek-V4-Pro", recipe.DeepseekV4Encoding(), deepseek_tok.V4), deepseek_tok.V4, fits_v4),
    examples(v41),
]
sys.exit(not all(good))
