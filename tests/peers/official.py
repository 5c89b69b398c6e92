#!/usr/bin/env python3
"""official.py: the official Python clients of OpenAI and Anthropic against `dsengine serve`.

    official.py --engine FILE --model DIR --dir SCRATCH [--user UID] [--only WORD]

What each endpoint says is compared with what chat/completions says to the same conversation: greedy, so
the texts must be equal. Prints "ok NAME" or "not ok NAME" with the reason below. Exit 1 if any failed.
"""
import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import traceback

import anthropic
import openai

import serving
from serving import PATIENCE_S

ap = argparse.ArgumentParser()
ap.add_argument("--engine", required=True)
ap.add_argument("--model", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--user")
ap.add_argument("--only", help="run the tests whose function name has this in it")
opt = ap.parse_args()

check = serving.Report("clients")

KEY = "a-key-of-the-clients"
QUESTION = "What is a rail?"
SUM = "What is 27 + 35?"
STORY = "Tell me a story about Ada the fox, with a red lamp near the river and Ben."


class Clients:
    """Both clients of one server, and what chat/completions says."""

    def __init__(self, server, key=KEY):
        base = f"http://127.0.0.1:{server.port}"
        self.server = server
        settings = {"api_key": key, "timeout": PATIENCE_S, "max_retries": 0}
        self.openai = openai.OpenAI(base_url=base + "/v1", **settings)
        self.anthropic = anthropic.Anthropic(base_url=base, **settings)
        self.async_openai = openai.AsyncOpenAI(base_url=base + "/v1", **settings)
        self.async_anthropic = anthropic.AsyncAnthropic(base_url=base, **settings)

    def chat(self, messages, think=False, **fields):
        fields = dict({"temperature": 0, "max_tokens": 200}, **fields)
        extra = {} if think else {"reasoning_effort": "none"}
        return self.openai.chat.completions.create(model="m", messages=messages, extra_body=extra, **fields)

    def say(self, text, **fields):
        return self.chat([{"role": "user", "content": text}], **fields).choices[0].message

    def message(self, content, temperature=0, **fields):
        """Newer versions of the package have no word for temperature, so it goes beside the others."""
        fields = dict({"max_tokens": 200}, **fields)
        messages = fields.pop("messages", [{"role": "user", "content": content}])
        call = fields.pop("call", self.anthropic.messages.create)
        return call(model="m", messages=messages, extra_body={"temperature": temperature}, **fields)

    def message_stream(self, content, **fields):
        return self.message(content, call=self.anthropic.messages.stream, **fields)

    def respond(self, text, **fields):
        fields = dict({"temperature": 0, "max_output_tokens": 200, "reasoning": {"effort": "none"}}, **fields)
        return fields.pop("call", self.openai.responses.create)(model="m", input=text, **fields)


def refused(f, kind):
    """The error of @kind that @f must raise."""
    try:
        got = f()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}, but {got}")


# ------------------------------------------------------------------------------ Anthropic

def test_messages(c):
    want = c.say(QUESTION).content
    got = c.message(QUESTION)
    check("messages: the text is what chat says", [b.type for b in got.content] == ["text"] and got.content[0].text == want
          and got.stop_reason == "end_turn" and got.role == "assistant" and got.type == "message"
          and got.id.startswith("msg_") and got.model == "demo-model", got)
    count = c.anthropic.messages.count_tokens(model="m", messages=[{"role": "user", "content": QUESTION}])
    check("messages: count_tokens counts what the answer's usage says", count.input_tokens == got.usage.input_tokens > 0
          and got.usage.output_tokens > 0, (count, got.usage))
    got = c.message(QUESTION, system=[{"type": "text", "text": "Be brief."}])
    want = c.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
    check("messages: system text is chat's system message", got.usage.input_tokens == want.usage.prompt_tokens
          and got.content[0].text == want.choices[0].message.content, (got, want))


def test_messages_stream(c):
    want = c.message(STORY)
    with c.message_stream(STORY) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    same = {"content", "stop_reason", "stop_sequence", "usage", "role", "model"}
    check("messages: a stream adds up to the whole", final.model_dump(include=same) == want.model_dump(include=same)
          and "".join(pieces) == want.content[0].text and len(pieces) > 20, final)
    events = [e.type for e in c.message(QUESTION, stream=True)]
    check("messages: events come in Anthropic's order", events[0] == "message_start" and events[1] == "content_block_start"
          and events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
          and set(events[2:-3]) == {"content_block_delta"}, events)


def test_messages_thinking(c):
    want = c.say(SUM, think=True)
    on = {"type": "enabled", "budget_tokens": 1024}
    got = c.message(SUM, thinking=on, max_tokens=2048)
    check("messages: thinking and text are chat's", [b.type for b in got.content] == ["thinking", "text"]
          and got.content[0].thinking == want.reasoning_content and got.content[1].text == want.content
          and got.content[0].signature, got)
    with c.message_stream(SUM, max_tokens=2048, thinking=on) as stream:
        final = stream.get_final_message()
    check("messages: a stream thinks the same", [b.model_dump(exclude={"signature"}) for b in final.content]
          == [b.model_dump(exclude={"signature"}) for b in got.content] and final.content[0].signature, final)
    again = [{"role": "user", "content": SUM}, {"role": "assistant", "content": final.content},
             {"role": "user", "content": "Hello"}]
    got = c.message("", messages=again, thinking={"type": "adaptive"}, output_config={"effort": "high"})
    chat = c.chat([again[0], {"role": "assistant", "content": want.content, "reasoning_content": want.reasoning_content},
                   again[2]], think=True)
    check("messages: what came back goes in again, as in chat", got.usage.input_tokens == chat.usage.prompt_tokens, (got, chat))
    check("messages: no thinking unless it is asked for", [b.type for b in c.message(SUM).content] == ["text"])


def test_messages_limits(c):
    got = c.message(QUESTION, max_tokens=3)
    check("messages: max_tokens", got.stop_reason == "max_tokens" and got.usage.output_tokens == 3, got)
    whole = c.message(QUESTION).content[0].text
    stop = whole[8:12]
    for stream in (False, True):
        if stream:
            with c.message_stream(QUESTION, stop_sequences=["absent", stop]) as s:
                got = s.get_final_message()
        else:
            got = c.message(QUESTION, stop_sequences=["absent", stop])
        check(f"messages: a stop sequence is named, stream {stream}", got.stop_reason == "stop_sequence"
              and got.stop_sequence == stop and got.content[0].text == whole[:whole.index(stop)], got)
    cut = whole.index(" ", len(whole) // 2)
    got = c.message("", messages=[{"role": "user", "content": QUESTION}, {"role": "assistant", "content": whole[:cut]}])
    check("messages: a beginning of the answer is continued", whole[:cut] + got.content[0].text == whole, got)


def test_messages_errors(c):
    e = refused(lambda: c.message([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]),
                anthropic.BadRequestError)
    check("messages: an image is refused by path", e.body["error"]["type"] == "invalid_request_error"
          and "messages[0].content[0].type" in e.body["error"]["message"], e.body)
    e = refused(lambda: c.message("lamp " * 5000), anthropic.BadRequestError)
    check("messages: a prompt beyond the context is named as clients look for it",
          "prompt is too long" in e.body["error"]["message"] and "4096" in e.body["error"]["message"], e.body)
    e = refused(lambda: c.message(QUESTION, temperature=9), anthropic.BadRequestError)
    check("messages: a number out of bounds is refused", "temperature" in e.body["error"]["message"], e.body)
    e = refused(lambda: Clients(c.server, "wrong").message(QUESTION), anthropic.AuthenticationError)
    check("messages: a wrong key has Anthropic's error", e.body["error"]["type"] == "authentication_error", e.body)


# ------------------------------------------------------------------------------ OpenAI

def test_responses(c):
    want = c.say(QUESTION).content
    got = c.respond(QUESTION)
    check("responses: the text is what chat says", got.output_text == want and got.status == "completed"
          and [i.type for i in got.output] == ["message"] and got.id.startswith("resp_") and got.model == "demo-model", got)
    got = c.respond([{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}], instructions="Be brief.",
                    metadata={"a": "b"})
    chat = c.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}])
    check("responses: instructions are chat's system message", got.usage.input_tokens == chat.usage.prompt_tokens
          and got.output_text == chat.choices[0].message.content and got.instructions == "Be brief."
          and got.metadata == {"a": "b"}, got)
    got = c.respond(QUESTION, max_output_tokens=3)
    check("responses: max_output_tokens is incomplete", got.status == "incomplete"
          and got.incomplete_details.reason == "max_output_tokens" and got.usage.output_tokens == 3
          and got.output[0].status == "incomplete", got)


def test_responses_stream(c):
    want = c.respond(STORY)
    with c.openai.responses.stream(model="m", input=STORY, temperature=0, max_output_tokens=200,
                                   reasoning={"effort": "none"}) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    check("responses: a stream adds up to the whole", final.output_text == "".join(deltas) == want.output_text
          and len(deltas) > 20 and final.usage == want.usage, final)
    raw = list(c.respond(QUESTION, stream=True))
    check("responses: events are numbered in OpenAI's order", [e.sequence_number for e in raw] == list(range(len(raw)))
          and [e.type for e in raw if not e.type.endswith(".delta")] == [
              "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
              "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"],
          [e.type for e in raw])


def test_responses_reasoning(c):
    want = c.say(SUM, think=True)
    got = c.respond(SUM, reasoning={"effort": "high"})
    check("responses: reasoning and text are chat's", [i.type for i in got.output] == ["reasoning", "message"]
          and got.output[0].content[0].text == want.reasoning_content and got.output_text == want.content
          and 0 < got.usage.output_tokens_details.reasoning_tokens < got.usage.output_tokens, got)
    chat = c.chat([{"role": "user", "content": SUM},
                   {"role": "assistant", "content": want.content, "reasoning_content": want.reasoning_content},
                   {"role": "user", "content": "Hello"}], think=True)
    for name, include in (("items", []), ("encrypted_content alone", ["reasoning.encrypted_content"])):
        got = c.respond(SUM, reasoning={"effort": "high"}, include=include)
        items = [i.model_dump(exclude_none=True) for i in got.output]
        if include:
            items[0].pop("content")
        again = c.respond([{"role": "user", "content": SUM}, *items, {"role": "user", "content": "Hello"}],
                          reasoning={"effort": "high"})
        check(f"responses: the output goes in again as {name}", again.usage.input_tokens == chat.usage.prompt_tokens,
              (items, again.usage, chat.usage))
    with c.openai.responses.stream(model="m", input=SUM, temperature=0) as stream:
        events = list(stream)
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    check("responses: a stream thinks the same, without any knob", thought == want.reasoning_content, thought)


def test_responses_errors(c):
    for fields, param in (({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
                          ({"tools": [{"type": "file_search", "vector_store_ids": ["x"]}]}, "tools[0].type"),
                          ({"temperature": 9}, "temperature"), ({"reasoning": {"effort": "extreme"}}, "reasoning.effort")):
        e = refused(lambda f=fields: c.respond(QUESTION, **f), openai.BadRequestError)
        check(f"responses: {json.dumps(fields)[:50]} is refused by name", e.param == param and e.body["message"], e.body)
    e = refused(lambda: c.respond("lamp " * 5000), openai.BadRequestError)
    check("responses: a prompt beyond the context", e.code == "context_length_exceeded", e.body)
    e = refused(lambda: Clients(c.server, "wrong").respond(QUESTION), openai.AuthenticationError)
    check("responses: a wrong key", e.code == "invalid_api_key", e.body)


# ------------------------------------------------------------------------------ both

def test_many(c):
    """Clients of all endpoints at once get what each gets alone."""
    texts = [QUESTION, "Hello", "Count from 3 to 17.", SUM]
    alone = {t: c.say(t).content for t in texts}

    async def one(kind, text):
        if kind == 0:
            return text, (await c.respond(text, call=c.async_openai.responses.create)).output_text
        if kind == 1:
            return text, (await c.message(text, call=c.async_anthropic.messages.create)).content[0].text
        stream = await c.respond(text, call=c.async_openai.responses.create, stream=True)
        return text, "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])

    async def all_of_them():
        return await asyncio.gather(*(one(i % 3, texts[i % 4]) for i in range(24)))
    got = asyncio.run(all_of_them())
    check("both: 24 clients at once get what each gets alone", all(alone[t] == said for t, said in got), got)


def test_cancel(c):
    def cancelled():
        c.say("Hello", max_tokens=1)  # the answer behind it shows that the line is written
        return c.server.said().count(b" cancelled id=")
    before = cancelled()
    stream = c.respond(STORY, stream=True, temperature=1.5, max_output_tokens=2000)
    for e in stream:
        if e.type == "response.output_text.delta":
            break
    stream.close()
    check("both: a response stream that is closed is cancelled", cancelled() == before + 1, c.server.said()[-400:])
    with c.message_stream(STORY, max_tokens=2000, temperature=1.5) as s:
        next(iter(s.text_stream))
    check("both: a message stream too", cancelled() == before + 2, c.server.said()[-400:])


def page_blocks(section):
    """The literal blocks of one section of dsengine-clients(7), as a reader would copy them."""
    with open("man/dsengine-clients.7") as f:
        text = f.read()
    body = text.split(f".Ss {section}", 1)[1].split("\n.S", 1)[0]
    return [b.split("\n.Ed", 1)[0].split("\n", 1)[1].replace("\\e", "\\") for b in body.split("\n.Bd -literal")[1:]]


def test_page(c):
    """The examples of the man page that say they are tested, run as they stand but for port and key."""
    for section, argv, end in (("curl", ["sh", "-c"], b"data: [DONE]"), ("The openai", [sys.executable, "-c"], b""),
                               ("The anthropic", [sys.executable, "-c"], b"")):
        blocks = page_blocks(section)
        block = blocks[0].replace("127.0.0.1:8000", f"127.0.0.1:{c.server.port}").replace("KEY", KEY)
        r = subprocess.run(argv + [block], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
        check(f"page: the example of {section} works", len(blocks) == 1 and r.returncode == 0
              and r.stdout.strip().endswith(end) and r.stdout.strip(), (block, r))


def attempt(f, c):
    if opt.only and opt.only not in f.__name__:
        return
    start = time.monotonic()
    try:
        f(c)
    except Exception:  # a test that cannot go on is a failed test; the others run
        check(f.__name__, False, traceback.format_exc()[-1500:])
    print(f"{f.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def main():
    keys = os.path.join(opt.dir, "keys")
    with open(keys, "w") as f:
        f.write(KEY + "\n")
    os.chmod(keys, 0o600)
    c = Clients(serving.Server(opt, "--api-key-file", keys))
    for f in (test_messages, test_messages_stream, test_messages_thinking, test_messages_limits, test_messages_errors,
              test_responses, test_responses_stream, test_responses_reasoning, test_responses_errors, test_many, test_cancel, test_page):
        attempt(f, c)
    return 1 if check.failed else 0


sys.exit(main())
