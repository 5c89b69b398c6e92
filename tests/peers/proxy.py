#!/usr/bin/env python3
"""proxy.py: `dsengine serve` behind nginx with TLS, by the block of dsengine-clients(7).

    proxy.py --engine FILE --model DIR --dir SCRATCH --nginx FILE [--user UID]

SCRATCH holds the block, a certificate and its key. Prints "ok NAME" or "not ok NAME". Exit 1 if any failed.
"""
import argparse
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time

import serving
from serving import PATIENCE_S

ap = argparse.ArgumentParser()
ap.add_argument("--engine", required=True)
ap.add_argument("--model", required=True)
ap.add_argument("--dir", required=True)
ap.add_argument("--nginx", required=True)
ap.add_argument("--user")
opt = ap.parse_args()

check = serving.Report("proxy")
NAME = "llm.example.net"
KEY = "a-key-behind-a-proxy"
STORY = "Tell me a story about Ada the fox, with a red lamp near the river and Ben."


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def path(name):
    return os.path.join(opt.dir, name)


def start_nginx(port, behind):
    """nginx with the block, its places filled in. A placeholder that is not there fails the test."""
    with open(path("block")) as f:
        block = f.read()
    for was, becomes in (("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"), ("http://127.0.0.1:8000", f"http://127.0.0.1:{behind}"),
                         ("/etc/ssl/llm.pem", path("llm.pem")), ("/etc/ssl/llm.key", path("llm.key"))):
        if block.count(was) != 1:
            raise AssertionError(f"the page's block has no {was!r}: {block}")
        block = block.replace(was, becomes)
    temp = "".join(f"{kind}_temp_path {path(kind)};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(path("nginx.conf"), "w") as f:
        f.write(f"daemon off;\nmaster_process off;\npid {path('nginx.pid')};\nerror_log stderr warn;\n"
                f"events {{}}\nhttp {{\naccess_log off;\n{temp}{block}\n}}\n")
    log = open(path("nginx.log"), "wb")
    p = subprocess.Popen([opt.nginx, "-p", opt.dir, "-e", "stderr", "-c", path("nginx.conf")], stdin=subprocess.DEVNULL,
                         stdout=log, stderr=log)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and p.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return p
        except OSError:
            time.sleep(0.02)
    with open(path("nginx.log")) as f:
        raise RuntimeError(f"nginx does not listen: {f.read()[-800:]}")


class Client:
    """HTTPS to the proxy, which must show the certificate of its name."""

    def __init__(self, port):
        self.port = port
        self.tls = ssl.create_default_context(cafile=path("llm.pem"))

    def ask(self, where, body, key=KEY):
        """The response to one request, on a connection of its own."""
        raw = self.tls.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S), server_hostname=NAME)
        c = http.client.HTTPConnection(NAME, timeout=PATIENCE_S)
        c.sock = raw
        c.request("POST" if body is not None else "GET", where, json.dumps(body) if body is not None else None,
                  {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        return c, c.getresponse()

    def json(self, where, body, **args):
        c, r = self.ask(where, body, **args)
        data = r.read()
        c.close()
        return r.status, data


def test(server, client):
    question = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "reasoning_effort": "none"}
    status, data = client.json("/v1/chat/completions", question)
    check("a question is answered over TLS", status == 200 and json.loads(data)["choices"][0]["message"]["content"], (status, data))
    status, data = client.json("/v1/chat/completions", question, key="wrong")
    check("the key is the server's", status == 401 and json.loads(data)["error"]["code"] == "invalid_api_key", (status, data))
    status, data = client.json("/health", None)
    check("only /v1 is passed on", status == 404, (status, data))
    body = {"messages": [{"role": "user", "content": "x" * (7 << 20)}], "max_tokens": 1}
    status, data = client.json("/v1/messages", body)
    check("a body of 7 MiB gets through to the server", status == 400 and b"prompt is too long" in data, (status, data[:200]))
    story = dict(question, messages=[{"role": "user", "content": STORY}], stream=True, temperature=1.5, max_tokens=2000)
    ended = server.said().count(b"answered id=")
    c, r = client.ask("/v1/chat/completions", story)
    got = 0
    for line in r:
        got += b'"content"' in line
        if got == 5:
            break
    check("events come while the answer is made", got == 5 and server.said().count(b"answered id=") == ended, server.said()[-300:])
    r.close()
    c.close()
    until = time.monotonic() + PATIENCE_S
    while b" cancelled id=" not in server.said() and time.monotonic() < until:
        time.sleep(0.05)
    check("a client that leaves the proxy cancels its request", b" cancelled id=" in server.said(), server.said()[-300:])
    for where, body in (("/v1/messages", {"max_tokens": 20, "messages": question["messages"], "stream": True}),
                        ("/v1/responses", {"input": "Hello", "stream": True, "max_output_tokens": 20})):
        c, r = client.ask(where, body)
        lines = [line.decode().rstrip() for line in r if line.strip()]
        c.close()
        check(f"the stream of {where} is whole", r.status == 200 and lines[-1] in ('data: {"type": "message_stop"}', "data: [DONE]"),
              lines[-2:])


def main():
    with open(path("keys"), "w") as f:
        f.write(KEY + "\n")
    os.chmod(path("keys"), 0o600)
    server = serving.Server(opt, "--api-key-file", path("keys"))
    port = free_port()
    nginx = start_nginx(port, server.port)
    try:
        test(server, Client(port))
    finally:
        nginx.terminate()
        try:
            nginx.wait(10)
        except subprocess.TimeoutExpired:
            nginx.kill()
            nginx.wait()
    return 1 if check.failed else 0


sys.exit(main())
