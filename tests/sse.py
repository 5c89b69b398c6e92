#!/usr/bin/env python3
"""sse.py: prints a chat stream as it comes, times it, and can run a command in the middle of it.

    sse.py --text FILE --json FILE [--after N --run CMD] -- curl -sN ...

Runs the command, whose output is the event stream of /v1/chat/completions. (In a pipe the command would
be done before this interpreter is up, and every time measured here would be wrong.) Content goes to standard output as
it arrives and whole into --text; --json gets counts and times: tokens, seconds to the first, tokens per
second, the longest pause and, with --after, the longest pause from the end of the command on and how many
tokens came after it. Exit 1 if the stream ends without [DONE] or carries an error.
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
ap.add_argument("command", nargs="+")
o = ap.parse_args()

client = subprocess.Popen(o.command, stdout=subprocess.PIPE)
start = last = time.monotonic()
first = cut = gap_after_cut = None
tokens = after = 0
longest, text, done, error, usage = 0.0, [], False, None, None
for raw in client.stdout:
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
        before, last = last, now
        if cut is not None:
            after += 1
            # What was on its way already comes at once; the stall, if there is one, comes later.
            gap_after_cut = max(gap_after_cut or 0.0, now - max(before, cut))
        text.append(piece)
        if not o.quiet:
            sys.stdout.write(piece)
            sys.stdout.flush()
        if o.after and tokens == o.after and o.run:
            subprocess.run(o.run, shell=True, check=True)
            cut = time.monotonic()
client.stdout.close()
client.wait()
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
