#!/usr/bin/env python3
"""tool_call.py PORT: a question, the model's tool call, its result, the answer; printed as they come.

Exit 1 when no call came, or when the answer does not hold what the tool said.
"""
import http.client
import json
import sys

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}


def ask(messages):
    c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    body = {"messages": messages, "tools": [WEATHER], "temperature": 0, "max_tokens": 200, "reasoning_effort": "none"}
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    said = json.loads(r.read())
    if r.status != 200:
        sys.exit(f"status {r.status}: {said}")
    return said["choices"][0]["message"]


messages = [{"role": "user", "content": "What is the weather in Paris for 2 days?"}]
print("  >", messages[0]["content"], flush=True)
message = ask(messages)
calls = message.get("tool_calls") or sys.exit(f"no call: {message}")
messages.append(message)
for call in calls:
    print(f"  calls {call['function']['name']}({call['function']['arguments']})", flush=True)
    json.loads(call["function"]["arguments"])
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "19C, rain"})
    print("  result:", messages[-1]["content"], flush=True)
answer = ask(messages).get("content") or ""
print("  " + answer, flush=True)
sys.exit("19" not in answer)
