#!/usr/bin/env python3
"""sse.py: prints a chat stream as it comes, times it, and can run a command in the middle of it.

    curl -sN ... | sse.py --text FILE --json FILE [--after N --run CMD]

Reads the event stream of /v1/chat/completions on standard input. Content goes to standard output as
it arrives and whole into --text; --json gets counts and times: tokens, seconds to the first, tokens per
second, the longest pause and, with --after, the pause behind the command (from its end to the next token)
and how many tokens came after it. Exit 1 if the stream ends without [DONE] or carries an error.
"""
import argparse
import json
import subprocess
import sys
import time

ap = argparse.ArgumentParser()
ap.add_argument("--text")
ap.add_argument("--json")
ap.add_argument("--after", type=int, default=0)
ap.add_argument("--run")
ap.add_argument("--quiet", action="store_true")
o = ap.parse_args()

start = last = time.monotonic()
first = cut = gap_after_cut = None
tokens = after = 0
longest, text, done, error, usage = 0.0, [], False, None, None
for raw in sys.stdin.buffer:
    line = raw.decode("utf-8", "replace").rstrip("\r\n")
    if not line.startswith("data:"):
        continue
    data = line[5:].strip()
    if data == "[DONE]":
        done = True
        break
    event = json.loads(data)
    if "error" in event:
        error = event["error"]
        continue
    usage = event.get("usage") or usage
    for choice in event.get("choices", []):
        delta = choice.get("delta", {})
        piece = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
        if not piece:
            continue
        now = time.monotonic()
        tokens += 1
        if first is None:
            first = now - start
        else:
            longest = max(longest, now - last)
        last = now
        if cut is not None:
            after += 1
            if gap_after_cut is None:
                gap_after_cut = now - cut
        text.append(piece)
        if not o.quiet:
            sys.stdout.write(piece)
            sys.stdout.flush()
        if o.after and tokens == o.after and o.run:
            subprocess.run(o.run, shell=True, check=True)
            cut = time.monotonic()
seconds = max(last - start - (first or 0), 1e-9)
if not o.quiet:
    print()
if o.text:
    with open(o.text, "w") as f:
        f.write("".join(text))
if o.json:
    with open(o.json, "w") as f:
        json.dump({"tokens": tokens, "first_s": first, "tokens_per_s": (tokens - 1) / seconds if tokens > 1 else None,
                   "longest_pause_s": longest, "pause_after_run_s": gap_after_cut, "tokens_after_run": after,
                   "done": done, "error": error, "usage": usage}, f)
if error:
    print(f"stream error: {error}", file=sys.stderr)
sys.exit(0 if done and not error else 1)
