#!/usr/bin/env python3
"""http_chat.py: a client of `dsengine serve` that looks at every promise of the chat endpoint.

    http_chat.py --engine FILE --model DIR --dir SCRATCH [--user UID]

Starts servers on free loopback ports, talks to them with the standard library alone, and prints one
line per test: "ok NAME" or "not ok NAME" with the reason below. Exit 1 if any failed.
"""
import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

import serving
from serving import PATIENCE_S

ap = argparse.ArgumentParser()
ap.add_argument("--engine", required=True)
ap.add_argument("--model", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--user")
ap.add_argument("--only", help="run the tests whose function name has this in it")
opt = ap.parse_args()

WAITING_MAX = 128   # requests behind the running one
PING_S = 5          # a waiting stream gets a comment

check = serving.Report("serve")


# ------------------------------------------------------------------------------ servers

class Server(serving.Server):
    """One that is asked on the chat endpoint."""

    def __init__(self, *args, wait=True):
        super().__init__(opt, *args, wait=wait)

    def post(self, body, **headers):
        """A chat request; @body: an object, or the bytes themselves."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        head.update({k.replace("_", "-"): v for k, v in headers.items()})
        status, headers, data = self.request("POST", "/v1/chat/completions", raw, head)
        return status, headers, json.loads(data)

    def ask(self, text, **fields):
        """The answer to one question, which must come."""
        status, _, answer = self.post(question(text, **fields))
        if status != 200:
            raise AssertionError(f"status {status}: {answer}")
        return answer


def question(text, **fields):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 64,
            "reasoning_effort": "none"}
    body.update(fields)
    return {k: v for k, v in body.items() if v is not ...}


class Stream:
    """A chat stream on a socket of its own, read piece by piece."""

    def __init__(self, server, body, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", server.port))
        raw = json.dumps(dict(body, stream=True)).encode()
        self.socket.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
        self.response = None

    def open(self):
        """The status and headers."""
        if self.response is None:
            self.response = http.client.HTTPResponse(self.socket, method="POST")
            self.response.begin()
        return self.response

    def lines(self):
        """Lines of the body as they come, without their ends; empty ones too."""
        self.open()
        while True:
            line = self.response.readline()
            if not line:
                return
            yield line.rstrip(b"\r\n").decode()

    def first(self, start):
        """The first line that begins with @start."""
        for line in self.lines():
            if line.startswith(start):
                return line
        raise AssertionError(f"the stream ended without a line that begins with {start!r}")

    def close(self):
        if self.response is not None:
            self.response.close()
        self.socket.close()


def read_stream(server, body):
    """Everything of one stream: events, text of both kinds, whether [DONE] was last."""
    s = Stream(server, body)
    try:
        r = s.open()
        kind = r.headers.get("Content-Type")
        if r.status != 200:
            raise AssertionError(f"status {r.status}: {r.read()!r}")
        data = [line[6:] for line in s.lines() if line.startswith("data: ")]
    finally:
        s.close()
    events = [json.loads(d) for d in data if d != "[DONE]"]
    deltas = [c["delta"] for e in events for c in e.get("choices", [])]
    return {"type": kind, "events": events, "done": data[-1:] == ["[DONE]"] and data.count("[DONE]") == 1,
            "content": "".join(d.get("content") or "" for d in deltas),
            "reasoning": "".join(d.get("reasoning_content") or "" for d in deltas),
            "finish": [c["finish_reason"] for e in events for c in e.get("choices", []) if c.get("finish_reason")]}


def generate(text, n, **fields):
    """What `dsengine generate` says to the same conversation."""
    name = os.path.join(opt.dir, "messages.json")
    with open(name, "w") as f:
        json.dump(question(text, **fields), f)
    os.chmod(name, 0o644)
    argv = [opt.engine, "generate", "-m", opt.model, "--messages", name, "-n", str(n), "--temperature", "0", "--json"]
    argv += ["--user", opt.user] if opt.user else []
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    if r.returncode != 0:
        raise AssertionError(f"generate: exit {r.returncode}, {r.stderr!r}")
    return json.loads(r.stdout)


MAIN = ("--prefill-chunk", "16")  # a client that leaves is noticed between two chunks
STORY = "Tell me a story about Ada the fox, with a red lamp near the river and Ben."
LONG = ""  # a prompt of a few seconds; see set_long()


# -------------------------------------------------------------------------------- tests

def test_health_and_models(s):
    status, headers, body = s.get("/health")
    h = json.loads(body)
    check("health is 200 and ok", status == 200 and h["format"] == 1 and h["status"] == "ok" and h["culprit"] is None
          and isinstance(h["epoch"], int) and len(h["ranks"]) == 1, body)
    status, _, body = s.get("/health", method="HEAD")
    check("HEAD of health has no body", status == 200 and body == b"", (status, body))
    status, _, body = s.get("/v1/models")
    models = json.loads(body)
    names = [m["id"] for m in models["data"]]
    check("the model is listed under its directory's name", status == 200 and models["object"] == "list"
          and names == ["demo-model"], body)
    status, _, body = s.get("/v1/models/demo-model")
    check("one model can be asked for", status == 200 and json.loads(body)["id"] == "demo-model", body)
    status, _, body = s.get("/v1/models/other")
    check("another model is 404", status == 404 and json.loads(body)["error"]["code"] == "model_not_found", body)


def test_answer(s):
    a = s.ask("Hello")
    c = a["choices"][0]
    check("an answer has OpenAI's shape", a["object"] == "chat.completion" and a["id"].startswith("chatcmpl-")
          and len(a["id"]) >= 9 + 24 and len(a["choices"]) == 1 and c["index"] == 0 and c["message"]["role"] == "assistant"
          and c["message"]["content"] and c["finish_reason"] == "stop" and a["model"] == "demo-model", a)
    u = a["usage"]
    check("usage counts the prompt as rendered", u["prompt_tokens"] == 5
          and u["total_tokens"] == 5 + u["completion_tokens"] and u["completion_tokens"] > 0, u)
    ids = {s.ask("Hello", max_tokens=1)["id"] for _ in range(5)}
    check("ids differ", len(ids) == 5, ids)
    a = s.ask("Hello", model="whatever", store=True, metadata={"x": [1]}, user="u", unknown_field=None)
    check("unknown fields and any model name are accepted", a["model"] == "demo-model"
          and a["choices"][0]["message"]["content"] == c["message"]["content"], a)


def test_equals_generate(s):
    for text in ("What is a rail?", "Count from 3 to 17.", "Reverse this list: fox, lamp, river, Mia."):
        want = generate(text, 64)
        got = s.ask(text)
        check(f"at temperature 0 the server says what generate says: {text}",
              got["choices"][0]["message"]["content"] == want["text"]
              and got["usage"]["completion_tokens"] == len(want["tokens"])
              and got["usage"]["prompt_tokens"] == len(want["prompt_ids"]), (got, want["text"]))


def test_stream(s):
    for text in ("What is a rail?", STORY):
        whole = s.ask(text)
        st = read_stream(s, question(text, stream_options={"include_usage": True}))
        check(f"a stream gives the text of the whole answer: {text[:20]}",
              st["content"] == whole["choices"][0]["message"]["content"] and st["content"] != "", st["content"])
        events = st["events"]
        check("a stream ends with one finish reason and [DONE]", st["done"]
              and st["finish"] == [whole["choices"][0]["finish_reason"]], st["finish"])
        check("a stream's type, role and ids", st["type"].startswith("text/event-stream")
              and events[0]["choices"][0]["delta"].get("role") == "assistant"
              and {e["object"] for e in events} == {"chat.completion.chunk"} and len({e["id"] for e in events}) == 1, events[0])
        check("usage comes last, with empty choices", events[-1]["choices"] == []
              and events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"], events[-1])
        check("text comes in many pieces", sum(1 for e in events for c in e["choices"] if c["delta"].get("content")) > 5)
    st = read_stream(s, question("Hello"))
    check("without include_usage no event lacks choices", all(e["choices"] for e in st["events"]))


def test_thinking(s):
    body = dict(max_tokens=200, reasoning_effort=...)
    a = s.ask("What is 27 + 35?", **body)
    m, u = a["choices"][0]["message"], a["usage"]
    check("thinking is on without any knob", bool(m.get("reasoning_content")) and "</think>" not in m["content"], a)
    check("reasoning tokens are counted", 0 < u["completion_tokens_details"]["reasoning_tokens"] < u["completion_tokens"], u)
    st = read_stream(s, question("What is 27 + 35?", **body))
    check("a stream parts reasoning from content in the same way", st["reasoning"] == m["reasoning_content"]
          and st["content"] == m["content"], st)
    for knob in ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}, {"think": False},
                 {"chat_template_kwargs": {"thinking": False}}):
        a = s.ask("Hello", **dict({"reasoning_effort": ...}, **knob))
        check(f"thinking off by {json.dumps(knob)}", not a["choices"][0]["message"].get("reasoning_content")
              and a["usage"]["prompt_tokens"] == 5, a)


def test_continue(s):
    whole = s.ask("What is a rail?")["choices"][0]["message"]["content"]
    cut = whole.index(" ", len(whole) // 2)
    for way in ({"continue_final_message": True}, {"prefix": True}):
        last = dict({"role": "assistant", "content": whole[:cut]}, **{k: v for k, v in way.items() if k == "prefix"})
        body = question("", messages=[{"role": "user", "content": "What is a rail?"}, last])
        body.update({k: v for k, v in way.items() if k != "prefix"})
        status, _, a = s.post(body)
        check(f"the last message is continued by {list(way)[0]}", status == 200
              and whole[:cut] + a["choices"][0]["message"]["content"] == whole, a)


def test_limits(s):
    a = s.ask("Count from 3 to 17.", max_tokens=3)
    check("max_tokens cuts with finish length", a["choices"][0]["finish_reason"] == "length"
          and a["usage"]["completion_tokens"] == 3, a)
    a = s.ask("Count from 3 to 17.", max_tokens=..., max_completion_tokens=2)
    check("max_completion_tokens does the same", a["usage"]["completion_tokens"] == 2, a)
    a = s.ask("Hello", max_tokens=100000000)
    check("max_tokens beyond the room is capped", a["choices"][0]["finish_reason"] == "stop", a)
    status, _, body = s.post(question("lamp " * 5000))
    e = body.get("error", {})
    check("a prompt beyond the context names both numbers", status == 400 and e.get("code") == "context_length_exceeded"
          and "4096" in e["message"], body)
    whole = s.ask("What is a rail?")["choices"][0]["message"]["content"]
    stop = whole[8:12]
    a = s.ask("What is a rail?", stop=["never in there", stop])
    check("a stop string ends the answer in front of it", a["choices"][0]["finish_reason"] == "stop"
          and a["choices"][0]["message"]["content"] == whole[:whole.index(stop)], (stop, a))
    st = read_stream(s, question("What is a rail?", stop=stop))
    check("in a stream too, and no part of it leaks", st["content"] == whole[:whole.index(stop)] and st["done"], st["content"])


def test_sampling(s):
    def draw(**fields):
        return s.ask(STORY, temperature=1.2, top_p=1.0, max_tokens=24, **fields)["choices"][0]["message"]["content"]
    one = draw(seed=5)
    check("a seed repeats", draw(seed=5) == one)
    check("other seeds differ", len({one, draw(seed=6), draw(seed=7)}) > 1)
    check("top_k 1 is greedy at any temperature", s.ask(STORY, temperature=2, top_k=1, max_tokens=24)["choices"]
          == s.ask(STORY, max_tokens=24)["choices"])


def test_ends(s):
    """Fields that say how an answer may end, and those that change what is drawn."""
    text, greedy = "Count from 3 to 17.", {"temperature": 0, "reasoning_effort": "none"}
    ids = generate(text, 64, reasoning_effort="none")["tokens"]
    n = len(ids)

    def ask(**fields):
        answer = s.ask(text, **{**greedy, "max_tokens": 64, **fields})
        return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]

    plain = ask()
    check("this answer ends by itself", plain[1:] == (n, "stop"), plain)
    more = ask(ignore_eos=True)
    check("ignore_eos goes on to the limit", more[1:] == (64, "length") and more[0].startswith(plain[0]), more)
    least = ask(min_tokens=n + 5)
    check("min_tokens keeps it from ending", least[1] >= n + 5 and least[0].startswith(plain[0]), least)
    at = ids.index(ids[6])
    check("stop_token_ids end it behind that token", ask(stop_token_ids=[ids[6]])[1:] == (at + 1, "stop") and plain[0].startswith(ask(stop_token_ids=[ids[6]])[0]))
    check("and not before min_tokens", ask(stop_token_ids=[ids[6]], min_tokens=at + 2)[1] >= at + 2)
    check("logit_bias bans", ask(logit_bias={str(ids[0]): -100}, max_tokens=1)[0] != ask(max_tokens=1)[0])
    forced = ask(logit_bias={str(ids[2]): 100}, max_tokens=5)
    check("and forces", len(set(forced[0][i:i + len(forced[0]) // 5] for i in range(0, len(forced[0]), len(forced[0]) // 5))) == 1, forced)
    check("a frequency penalty changes a text that repeats its commas", ask(frequency_penalty=2, max_tokens=30)[0] != ask(max_tokens=30)[0])
    for field, value in (("logit_bias", {"99999": 1}), ("stop_token_ids", [99999])):
        status, _, said = s.post(question("Hi", max_tokens=2, **{field: value}))
        check(f"{field} outside the vocabulary is refused by name", status == 400 and said["error"]["param"] == field, said)


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
LINK = {"type": "function", "function": {"name": "get_link_status", "description": "State of a port", "parameters": {
    "type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}}}


def test_tools(s):
    """A question, calls, their results, an answer; whole and streamed; and what tool_choice says."""
    text = "What is the weather in Paris and Rome for 2 days?"
    fields = {"tools": [WEATHER, LINK], "reasoning_effort": "none", "max_tokens": 200}
    first = s.ask(text, **fields)["choices"][0]
    calls = first["message"].get("tool_calls", [])
    said = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
    # That the second city is wrong is the small model's, which repeats entities in parallel calls.
    check("a question gives two calls", len(said) == 2 and said[0] == ("get_weather", {"city": "Paris", "days": 2})
          and said[1][0] == "get_weather" and first["finish_reason"] == "tool_calls", first)
    ids = [c["id"] for c in calls]
    check("their ids are long and differ", len(set(ids)) == 2 and all(i.startswith("call_") and len(i) >= 21 for i in ids), ids)
    check("no markup is shown", "DSML" not in json.dumps(first), first)

    st = Stream(s, question(text, stream=True, **fields))
    st.open()
    deltas, finish = [], None
    for line in st.lines():
        if line.startswith("data: {"):
            choice = json.loads(line[6:])["choices"]
            deltas += choice[0]["delta"].get("tool_calls", []) if choice else []
            finish = choice[0]["finish_reason"] or finish if choice else finish
    told = {}
    for d in deltas:
        name, args = told.get(d["index"], ("", ""))
        told[d["index"]] = (name + d["function"].get("name", ""), args + d["function"].get("arguments", ""))
    check("streamed, their pieces add up to the same", [(n, json.loads(a)) for n, a in told.values()] == said and finish == "tool_calls"
          and len(deltas) > 4, deltas)

    history = question(text, **fields)
    history["messages"] += [first["message"]] + [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, ("19C, rain", "24C, sun"))]
    status, _, told = s.post(history)
    answer = told["choices"][0]["message"] if status == 200 else {}
    check("their results give an answer", status == 200 and "19" in answer.get("content", "") and not answer.get("tool_calls"), told)

    none = s.ask(text, tool_choice="none", **fields)["choices"][0]
    check("tool_choice none: no call", not none["message"].get("tool_calls") and "DSML" not in json.dumps(none), none)
    for choice, name in (("required", None), ({"type": "function", "function": {"name": "get_link_status"}}, "get_link_status")):
        for effort in ("none", "high"):
            got = s.ask("Hello there.", **{**fields, "tool_choice": choice, "reasoning_effort": effort, "max_tokens": 400})["choices"][0]
            names = [c["function"]["name"] for c in got["message"].get("tool_calls", [])]
            check(f"tool_choice {name or choice} with effort {effort} gives a call", names and name in (None, names[0])
                  and "DSML" not in (got["message"].get("content") or ""), got)


def test_bad_bodies(s):
    raw = {
        "an empty body": b"", "no JSON": b"hello", "half an object": b'{"messages": [', "a list": b"[]", "a number": b"5",
        "text that is no UTF-8": b'{"messages":[{"role":"user","content":"\xff"}]}', "deep nesting": b"[" * 100000,
        "deep objects": b'{"a":' * 50000, "something behind the object": b'{"messages":[{"role":"user","content":"x"}]} x',
        "a lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    }
    for name, body in raw.items():
        status, _, e = s.post(body)
        check(f"{name} is 400", status == 400 and e["error"]["message"] and e["error"]["type"] == "invalid_request_error",
              (status, e))
    fields = [
        ({"messages": ...}, "messages"), ({"messages": []}, "messages"), ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "function", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
         "messages[0].content[0].type"),
        ({"tool_choice": "required"}, "tool_choice"), ({"n": 2}, "n"), ({"n": 0}, "n"),
        ({"logprobs": True}, "logprobs"), ({"temperature": -1}, "temperature"), ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"), ({"top_p": 2}, "top_p"), ({"top_k": -5}, "top_k"), ({"seed": "x"}, "seed"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"), ({"stream": "yes"}, "stream"), ({"stop": 5}, "stop"),
        ({"stop": ["x"] * 100}, "stop"), ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"), ({"reasoning_effort": 0}, "reasoning_effort"),
        ({"stream_options": 5}, "stream_options"), ({"model": 5}, "model"),
    ]
    for change, param in fields:
        status, _, e = s.post(question("Hello", **change))
        shown = json.dumps(change, default=lambda _: "absent")[:60]
        check(f"{shown} is refused by name", status == 400 and e["error"]["param"] == param and e["error"]["message"], (status, e))
    for stream in (True, False):
        status, headers, e = s.post(question("Hello", n=2, stream=stream))
        check(f"an error before the answer is JSON, stream {stream}", status == 400
              and headers["Content-Type"].startswith("application/json") and e["error"]["param"] == "n", e)
    status, _, a = s.post(b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0,"max_tokens":2,"reasoning_effort":"none"}')
    check("the last of two equal keys wins", status == 200 and a["usage"]["completion_tokens"] <= 2, a)
    status, _, a = s.post(b'{"messages":[{"role":"user","content":"a\\u0000b"}],"max_tokens":1}')
    check("NUL in a text is kept", status == 200, a)


def test_http(s):
    body = json.dumps(question("Hello")).encode()
    path = "/v1/chat/completions"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"):
        status, _, data = s.request("POST", path, body, {"Content-Type": kind})
        check(f"content type {kind} is 415", status == 415 and json.loads(data)["error"], data)
    status, _, data = s.request("POST", path, body, {"Content-Type": "application/json; charset=utf-8"})
    check("a charset behind the type is fine", status == 200, data)
    for p in ("/", "/v1", "/v1/chat", "/v1/chat/completions/x", "/v1/completions", "/v1/models/", "/metrics", "//health", "/health/x"):
        status, _, data = s.get(p)
        check(f"GET {p} is 404", status == 404 and json.loads(data)["error"]["message"], (status, data))
    for method, p, allow in (("GET", path, "POST"), ("DELETE", path, "POST"), ("POST", "/health", "GET"), ("PUT", "/v1/models", "GET")):
        status, headers, data = s.get(p, method=method)
        check(f"{method} {p} is 405 and says {allow}", status == 405 and allow in (headers["Allow"] or ""), (status, data))
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", "localhost@evil", ""):
        status, _, data = s.get("/v1/models", Host=host)
        check(f"Host: {host!r} is not let in", status in (400, 403), (status, data))
    status, _, data = s.get("/v1/models", Host="localhost:1")
    check("Host: localhost with another port is", status == 200, data)
    status, _, data = s.get("/v1/models", Origin="http://evil.example")
    check("a web page is not let in", status == 403, data)
    big = b'{"messages":[{"role":"user","content":"' + b"x" * (9 << 20) + b'"}]}'
    try:
        status, _, data = s.request("POST", path, big, {"Content-Type": "application/json"})
    except OSError as e:  # refused before it was read: the reset may overtake the answer
        status, data = 413, str(e)
    check("a body over 8 MiB is 413", status == 413, (status, data))
    status, _, data = s.request("POST", path, iter([body[:10], body[10:]]), {"Content-Type": "application/json"})
    check("a chunked body is read", status == 200, data)
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=PATIENCE_S)
    seen = []
    for _ in range(3):
        c.request("POST", path, body, {"Content-Type": "application/json"})
        r = c.getresponse()
        seen.append(r.status)
        r.read()
    c.close()
    check("a connection serves several requests", seen == [200] * 3, seen)
    status, _, data = s.request("GET", "/health", "hello", {})
    check("a GET that brings a body gets its answer", status == 200 and b"status" in data, (status, data))
    for name, lengths in (("two lengths", b"Content-Length: %d\r\nContent-Length: 2\r\n"),
                          ("a length and chunks", b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n")):
        with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S) as k:
            k.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      + lengths % len(body) + b"\r\n")
            got = k.recv(4096)
            # libmicrohttpd 1.0 refuses the second one before it asks us
            by = b"ambiguous_length" in got or b"Transfer-Encoding and Content-Length" in got
            check(f"{name} are refused, for a proxy may believe the other", got.startswith(b"HTTP/1.1 400") and by and k.recv(1) == b"", got)
    with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S) as k:
        k.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        first = k.recv(100)
        k.sendall(body)
        check("Expect: 100-continue is answered", first.startswith(b"HTTP/1.1 100") and b"200 OK" in k.recv(100), first)


def test_garbage(s):
    for name, data in (("noise", bytes(range(256)) * 4), ("a long header", b"GET /health HTTP/1.1\r\nX: " + b"x" * 200000),
                       ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
                       ("a negative length", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"),
                       ("two lengths", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello")):
        with socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE_S) as k:
            k.settimeout(2)  # a request that is not whole may be kept until the server's own time limit
            try:
                k.sendall(data)
                k.shutdown(socket.SHUT_WR)
                got = k.recv(4096)
            except OSError:
                got = b""
        check(f"{name} is refused and the server goes on", not got.startswith(b"HTTP/1.1 200") and s.get("/health")[0] == 200, got)
    slow = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(50)]
    for k in slow:
        k.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
    check("half-sent requests keep nobody waiting", s.ask("Hello", max_tokens=2)["usage"]["completion_tokens"] == 2)
    for k in slow:
        k.close()


def test_idle(s):
    """Connections that say nothing neither keep the next client out nor stay."""
    idle = [socket.create_connection(("127.0.0.1", s.port), timeout=5) for _ in range(600)]
    code = s.get("/health")[0]
    check("600 silent connections do not keep a client out", code == 200, code)
    ends = 0
    for c in idle:
        c.settimeout(40)
        ends += c.recv(1) == b""
        c.close()
    check("the server closes connections that stay silent", ends == len(idle), ends)


def seconds(f):
    start = time.monotonic()
    f()
    return time.monotonic() - start


def cancelled(s):
    """Answers that the server's log calls cancelled; the next answer shows that the line is written."""
    s.ask("Hello", max_tokens=1)
    return s.said().count(b" cancelled id=")


def test_cancel(s):
    before = cancelled(s)
    st = Stream(s, question(LONG, max_tokens=200, temperature=1.5, seed=1))
    st.first("data: ")  # it runs: the role is said
    st.close()
    check("a stream whose client leaves in the middle of the prompt ends there", cancelled(s) == before + 1, s.said()[-600:])
    body = json.dumps(question(LONG, max_tokens=200, temperature=1.5, seed=1)).encode()
    k = socket.create_connection(("127.0.0.1", s.port))
    k.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(0.5)
    k.close()
    check("so does one without a stream", cancelled(s) == before + 2, s.said()[-600:])
    st = Stream(s, question(STORY, max_tokens=2000, temperature=2, top_p=1.0, seed=3))
    got = 0
    for line in st.lines():
        got += '"content"' in line
        if got == 5:
            break
    st.close()
    check("and one that leaves after five tokens", got == 5 and cancelled(s) == before + 3, s.said()[-600:])
    st = Stream(s, question(STORY, max_tokens=300, temperature=2, top_p=1.0, seed=3), receive_buffer=2048)
    st.first("data: ")
    short = seconds(lambda: s.ask("Hello", max_tokens=1))
    check("a client that does not read holds nobody up", short < PATIENCE_S / 2, f"{short:.1f} s")
    st.close()


def test_order(s):
    blocker = Stream(s, question(LONG, max_tokens=1))
    blocker.first("data: ")
    ids, threads = {}, []

    def one(i):
        ids[i] = s.ask("Hello", max_tokens=1)["id"]
    for i in range(6):
        threads.append(threading.Thread(target=one, args=(i,)))
        threads[-1].start()
        time.sleep(0.2)
    for t in threads:
        t.join(PATIENCE_S)
    blocker.close()
    # The server's own account: the threads here wake up in any order.
    # It writes a line when the client has the answer already, so the last one may still be to come.
    until = time.monotonic() + PATIENCE_S
    place = [-1]
    while -1 in place and time.monotonic() < until:
        said = s.said().decode()
        place = [said.find(f"answered id={ids[i]} ") for i in range(6) if i in ids]
        time.sleep(0.02)
    check("requests are answered in arrival order", len(place) == 6 and -1 not in place and place == sorted(place), place)


def test_queue(s):
    alone = seconds(lambda: s.ask(LONG, max_tokens=1))
    n_long = min(1 + int((PING_S + 4) / max(alone, 0.1)), 100)
    # The first runs, the others wait: long ones first, so that nobody gets through meanwhile.
    streams = [Stream(s, question(LONG, max_tokens=1))]
    streams[0].first("data: ")
    start = time.monotonic()
    streams += [Stream(s, question(LONG, max_tokens=1)) for _ in range(n_long)]
    time.sleep(0.2)
    streams += [Stream(s, question("Hello", max_tokens=1)) for _ in range(WAITING_MAX - n_long)]
    statuses = [t.open().status for t in streams]
    filled = time.monotonic() - start
    status, headers, e = s.post(question("Hello"))
    check(f"{WAITING_MAX} requests wait behind the running one", statuses == [200] * (WAITING_MAX + 1), statuses)
    check("the next one is 503 with Retry-After", status == 503 and int(headers["Retry-After"]) > 0 and e["error"]["message"],
          f"{status} {e}; filled in {filled:.1f} s, one alone takes {alone:.1f} s")
    last = Stream(s, question("Hello"))
    check("a stream too", last.open().status == 503, last.open().status)
    last.close()
    check("health answers all the while", s.get("/health")[0] == 200)
    streams.pop().close()
    time.sleep(0.7)
    late = Stream(s, question("Hello", max_tokens=1))
    check("a client that leaves the queue makes room in it", late.open().status == 200, late.open().status)
    line = next(late.lines())
    waited = time.monotonic() - start
    check("a waiting stream gets a comment within five seconds", line.startswith(":") and waited < filled + PING_S + 3,
          (line, waited))
    for t in streams[:n_long + 1]:
        t.close()
    shorts = streams[n_long + 1:] + [late]
    ended = [t.first("data: [DONE]") for t in shorts]
    check("all that wait are answered once the long ones have left", len(ended) == len(shorts))
    for t in shorts:
        t.close()
    check("the queue is empty again", s.post(question("Hello", max_tokens=1))[0] == 200)


def test_load(s):
    """Answers under load are the answers alone."""
    texts = ["What is a rail?", "Count from 3 to 17.", "Hello", "How do I set up two nodes?"]
    alone = {t: s.ask(t)["choices"][0]["message"]["content"] for t in texts}
    got, threads = [], []
    for t in texts * 3:
        threads.append(threading.Thread(target=lambda t=t: got.append((t, read_stream(s, question(t))["content"]))))
        threads[-1].start()
    for t in threads:
        t.join(PATIENCE_S)
    check("twelve clients at once get what each gets alone", len(got) == 12 and all(alone[t] == text for t, text in got), got)


def test_stop(s):
    st = Stream(s, question(LONG, max_tokens=1))
    st.first("data: ")
    waiting = Stream(s, question("Hello"))
    waiting.open()
    start = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    told = list(waiting.lines())
    check("a stop tells waiting streams, and ends them with [DONE]", any('"error"' in l for l in told)
          and [l for l in told if l][-1] == "data: [DONE]", told)
    rest = [l for l in st.lines() if l]
    check("the running stream ends with [DONE] or is cut", not rest or rest[-1] == "data: [DONE]" or time.monotonic() - start > 4, rest)
    code = s.process.wait(20)
    check("SIGTERM ends the server with exit 0", code == 0, (code, s.said()[-400:]))


def with_keys():
    name = os.path.join(opt.dir, "keys")
    with open(name, "w") as f:
        f.write("# keys\nfirst-key\nsecond-key\n")
    os.chmod(name, 0o600)
    s = Server("--api-key-file", name, "--name", "named")
    bare = s.get("/v1/models")
    wrong = s.get("/v1/models", Authorization="Bearer nope")
    check("a missing and a wrong key give the same 401", bare[0] == wrong[0] == 401 and bare[2] == wrong[2], (bare, wrong))
    check("the body is not read first", s.post(b"not JSON")[0] == 401)
    for headers in ({"Authorization": "Bearer first-key"}, {"Authorization": "bearer second-key"}, {"x_api_key": "first-key"}):
        status, _, data = s.get("/v1/models", **headers)
        check(f"a right key passes: {list(headers)[0]}", status == 200 and json.loads(data)["data"][0]["id"] == "named", data)
    for key in ("first-ke", "first-key2", "# keys", "", "first-key\tsecond-key"):
        check(f"{key!r} is no key", s.get("/v1/models", Authorization="Bearer " + key)[0] == 401)
    status, _, data = s.get("/health")
    check("health without a key is the word alone", status == 200 and set(json.loads(data)) <= {"format", "status"}, data)
    status, _, data = s.get("/health", Authorization="Bearer first-key")
    check("and whole with one", "ranks" in json.loads(data), data)
    check("keys are not logged", b"first-key" not in s.said() and b"nope" not in s.said())
    for sig in (signal.SIGHUP, signal.SIGINT):
        code = s.stop(sig)
        check(f"{sig.name} is an orderly stop", code == 0, (code, s.said()[-400:]))
        if sig is signal.SIGHUP:
            s = Server("--api-key-file", name)


def refusals():
    def run(*args):
        argv = [opt.engine, "serve", *args] + (["--user", opt.user] if opt.user else [])
        r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        return r.returncode, r.stdout
    code, said = run("-m", opt.model, "--host", "0.0.0.0", "--port", "1")
    check("an address beyond loopback without keys is refused", code != 0 and b"insecure-no-auth" in said, (code, said))
    for args in (("--draft", "on"), ("--spawn", "2"), ("--port", "x"), ("--port", "0"), ("--nonsense",)):
        code, said = run("-m", opt.model, *args)
        check(f"{' '.join(args)} is a usage error", code == 64 and said, (code, said))
    with socket.socket() as k:
        k.bind(("127.0.0.1", 0))
        free = k.getsockname()[1]
    code, said = run("-m", os.path.join(opt.dir, "no-model"), "--port", str(free))
    check("a missing model is named", code == 1 and b"no-model" in said, (code, said))
    with socket.socket() as k:
        k.bind(("127.0.0.1", 0))
        k.listen()
        code, said = run("-m", opt.model, "--port", str(k.getsockname()[1]))
        check("a port in use is named", code == 1 and str(k.getsockname()[1]).encode() in said, (code, said))


def set_long(s):
    """A prompt that takes some three seconds here, within the context: long enough to leave in the middle of it."""
    global LONG
    words = "lamp river fox moon "
    once = seconds(lambda: s.ask(words * 60, max_tokens=1))
    LONG = words * max(60, min(900, int(60 * 3 / max(once, 0.01))))


def attempt(f, *args):
    if opt.only and opt.only not in f.__name__:
        return
    start = time.monotonic()
    try:
        f(*args)
    except Exception:  # a test that cannot go on is a failed test; the others run
        check(f.__name__, False, traceback.format_exc()[-1500:])
    print(f"{f.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def main():
    attempt(refusals)
    attempt(with_keys)
    s = Server(*MAIN)
    set_long(s)
    for f in (test_health_and_models, test_answer, test_equals_generate, test_stream, test_thinking, test_continue, test_limits, test_sampling, test_ends, test_tools,
              test_bad_bodies, test_http, test_garbage, test_idle, test_load, test_cancel, test_order, test_queue):
        attempt(f, s)
        if s.process.poll() is not None:
            check("the server lives", False, f"exit {s.process.returncode} during {f.__name__}: {s.said()[-1500:]!r}")
            s = Server(*MAIN)
    attempt(test_stop, s)
    return 1 if check.failed else 0


sys.exit(main())
