"""serving.py: a running `dsengine serve` for the clients of tests/peers, and their report.

Prints one line per test: "ok NAME" or "not ok NAME" with the reason below.
"""
import atexit
import http.client
import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE_S = 60     # for one answer; sanitizer builds are slow

servers = []


class Report:
    """Counts what failed; names carry the suite's word in front."""

    def __init__(self, word):
        self.word = word
        self.failed = 0

    def __call__(self, name, good, why=""):
        if good:
            print(f"ok {self.word}: {name}", flush=True)
            return
        self.failed += 1
        print(f"not ok {self.word}: {name}\n   {str(why)[:600]}", flush=True)


class Server:
    """A running `dsengine serve`; ready when its health says so. @opt: engine, model, dir, user."""

    def __init__(self, opt, *args, wait=True):
        self.log = open(os.path.join(opt.dir, f"serve-{len(servers)}.log"), "wb+")
        for _ in range(3):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                self.port = s.getsockname()[1]
            argv = [opt.engine, "serve", "-m", opt.model, "--host", "127.0.0.1", "--port", str(self.port)]
            argv += (["--user", opt.user] if opt.user else []) + list(args)
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            servers.append(self)
            if not wait or self.ready():
                return
            if b"Address already in use" not in self.said():
                break
        raise RuntimeError(f"the server did not become ready: {self.said()[-800:]!r}")

    def ready(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if self.get("/health")[0] == 200:
                    return True
            except OSError:
                pass
            time.sleep(0.02)
        return False

    def said(self):
        self.log.flush()
        with open(self.log.name, "rb") as f:
            return f.read()

    def get(self, path, method="GET", **headers):
        return self.request(method, path, None, {k.replace("_", "-"): v for k, v in headers.items()})

    def request(self, method, path, body, headers):
        """Status, headers and body of one exchange on a connection of its own."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            c.request(method, path, body, headers)
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def stop(self, sig=signal.SIGTERM, patience=20):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(patience)


@atexit.register
def stop_all():
    for s in servers:
        if s.process.poll() is None:
            s.process.terminate()
    for s in servers:
        try:
            s.process.wait(5)
        except subprocess.TimeoutExpired:
            s.process.kill()
            s.process.wait()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
