"""path_loss.py BUILD RUN PID_A PID_B [CUTS]: what path-loss.sh runs once the two nodes stand.

Two ranks of dsengine serve an answer over two rails. At a random instant of it a rail is lost, from outside
the engine: the link goes down at the far end, or an nft netdev rule silently drops what arrives at one
node (both links stay up). Every time: both rails carried bytes before; a chunk was unacknowledged and was
sent again; tokens came after it, none more than 2 s late; the ids equal those of the undisturbed run; the
loss was noticed within 2 s; the rail carries again after the repair. The last line says how fast.

The reference kernels make the model slow enough that an answer lasts about two seconds.
"""
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

BUILD, RUN, PID = sys.argv[1], sys.argv[2], sys.argv[3:5]
CUTS = int(sys.argv[5]) if len(sys.argv) > 5 else 20
RAIL = ["enp1s0f0np0", "enP2p1s0f0np0"]
NOTICED_S, BACK_S = 2.0, 5.0
seed = int(os.environ.get("SEED", "20260910"))
rng = random.Random(seed)
failed = 0


def say(good, what, why=""):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} {what}" + (f"\n   {why}" if why and not good else ""), flush=True)


def on(node, *argv, **kw):
    return subprocess.run(["nsenter", "-t", PID[node], "-n", *argv], check=True, capture_output=True, text=True, **kw).stdout


def tx_bytes(node):
    """Bytes sent so far on both rails, by the kernel's counters."""
    links = {l["ifname"]: l["stats64"]["tx"]["bytes"] for l in json.loads(on(node, "ip", "-s", "-j", "link", "show")) if "stats64" in l}
    return [links[r] for r in RAIL]


def host_report(node):
    rails = [{"rail": r, "cage": 0, "edge": "1-2", "netdev": RAIL[r], "ibdev": None, "ipv4": f"10.200.{r}.{node + 1}/24", "mtu": 9000,
              "identified_by": "name", "peers": [{"node": 2 - node, "ipv4": f"10.200.{r}.{2 - node}"}]} for r in (0, 1)]
    return {"format": 1, "generation": 1, "node": node + 1, "nodes": 2, "shape": "pair", "rails": rails}


def start(rank):
    with open(f"{RUN}/host{rank}.json", "w") as f:
        json.dump(host_report(rank), f)
    with open(f"{RUN}/rank{rank}.conf", "w") as f:
        f.write(f"[engine]\nmodel = {RUN}/model\nworld = 2\nrank = {rank}\nkernels = ref\nhost_report = {RUN}/host{rank}.json\n"
                "rank.0 = 10.200.0.1\nrank.1 = 10.200.0.2\n")
    log = open(f"{RUN}/rank{rank}.log", "w")
    return subprocess.Popen(["nsenter", "-t", PID[rank], "-n", f"{RUN}/dsengine", "serve", "-c", f"{RUN}/rank{rank}.conf",
                             "--secret-file", f"{RUN}/secret", "--user", "65534"], stdout=log, stderr=log)


def log_of(rank):
    with open(f"{RUN}/rank{rank}.log") as f:
        return f.read()


def health():
    try:
        return json.loads(on(0, "curl", "-s", "-m", "2", "http://127.0.0.1:8000/health"))
    except (subprocess.CalledProcessError, ValueError):
        return {"status": "silent", "ranks": []}


def wait(condition, seconds):
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if condition():
            return time.monotonic() - begin
        time.sleep(0.02)
    return None


BODY = json.dumps({"messages": [{"role": "user", "content": "Tell me a story about Ada the fox, with a red lamp near the river and Ben."}],
                   "max_tokens": 200, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "reasoning_effort": "none"})
tokens = 0  # of the last answer, by its usage: with the text they stand for its ids


def answer(events):
    """Streams one answer; appends (time, text) per token to events. True if it ended in order."""
    global tokens
    p = subprocess.Popen(["nsenter", "-t", PID[0], "-n", "curl", "-sN", "-m", "30", "-H", "Content-Type: application/json",
                          "--data-binary", BODY, "http://127.0.0.1:8000/v1/chat/completions"], stdout=subprocess.PIPE)
    done = False
    for raw in p.stdout:
        line = raw.decode().strip()
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            for c in event.get("choices", []):
                if c["delta"].get("content"):
                    events.append((time.monotonic(), c["delta"]["content"]))
    p.wait()
    return done and p.returncode == 0


def resent():
    """Chunks sent again so far, as rank 0's health and rank 1's log say (the log lags by one look)."""
    mine = sum(p["resent"] for r in health()["ranks"] for p in r["paths"])
    theirs = [int(m) for m in re.findall(r"path (?:down|ok again).*resent=(\d+)", log_of(1))]
    return mine + (theirs[-1] if theirs else 0)


class Down:
    """The far end takes the link down: carrier is lost at the near end."""

    def __init__(self, node):
        self.node, self.name = node, f"link down at {'ab'[node]}"

    def cut(self, rail):
        on(self.node, "ip", "link", "set", RAIL[rail], "down")

    def mend(self, rail):
        on(self.node, "ip", "link", "set", RAIL[rail], "up")


class Silent:
    """What arrives at `node` on the rail vanishes; the other direction works, both links are up."""

    def __init__(self, node):
        self.node, self.name = node, f"silent loss towards {'ab'[node]}"

    def cut(self, rail):
        on(self.node, "nft", f"add table netdev cut; add chain netdev cut in {{ type filter hook ingress device {RAIL[rail]} priority 0; policy drop; }}")

    def mend(self, rail):
        on(self.node, "nft", "delete", "table", "netdev", "cut")


def downs(rail, rank):
    if rank == 0:
        return sum(p["downs"] for r in health()["ranks"] for p in r["paths"] if p["name"] == f"rail{rail}")
    return len(re.findall(rf"path down .*path=rail{rail}", log_of(1)))


def one(kind, rail, want, tries=3):
    """One cut in one answer. Returns (misses, seconds until noticed by both, longest wait, seconds until back)."""
    miss = []
    before_tx = [tx_bytes(n) for n in (0, 1)]
    before_downs, before_resent = [downs(rail, k) for k in (0, 1)], resent()
    events, ended, at = [], [], rng.randrange(3, 60)
    t = threading.Thread(target=lambda: ended.append(answer(events)))
    t.start()
    wait(lambda: len(events) >= at, 10)
    time.sleep(rng.uniform(0.0, 0.01))  # anywhere inside a step
    carried = [[now - before for now, before in zip(tx_bytes(n), before_tx[n])] for n in (0, 1)]
    begin = time.monotonic()
    kind.cut(rail)
    seen = len(events)
    noticed = wait(lambda: all(downs(rail, k) > before_downs[k] for k in (0, 1)), NOTICED_S + 1)
    t.join(30)
    kind.mend(rail)
    if len(events) <= seen and tries > 1:  # a busy machine: the answer was over first, this cut says nothing
        wait(lambda: health()["status"] == "ok", BACK_S)
        return one(kind, rail, want, tries - 1)
    for n in (0, 1):
        if min(carried[n]) * 4 < sum(carried[n]):
            miss.append(f"before the cut node {'ab'[n]} sent {carried[n]} bytes over the two rails")
    gaps = [b[0] - a[0] for a, b in zip(events, events[1:]) if b[0] > begin]
    said = (tokens, "".join(e[1] for e in events))
    if not ended or not ended[0]:
        miss.append("the answer did not end in order")
    if said != want:
        miss.append(f"the answer differs: {said[0]} tokens, {said[1][-60:]!r}")
    if len(events) <= seen:
        miss.append("the answer was over before the cut")
    if gaps and max(gaps) > 2.0:
        miss.append(f"a token came {max(gaps):.2f} s late")
    if noticed is None or noticed > NOTICED_S:
        miss.append(f"not noticed by both ranks within {NOTICED_S} s")
    back = wait(lambda: health()["status"] == "ok", BACK_S)
    if back is None:
        miss.append(f"not ok within {BACK_S} s of the repair: {health()}")
    # Rank 1 says how many chunks it sent again when the path is back; give its watch one look.
    if wait(lambda: resent() > before_resent, 1.0) is None:
        miss.append("no chunk was sent again")
    return miss, noticed or 99, max(gaps, default=0), back or 99


def without_address(ranks, want):
    """The weights stay while a lost group's address is away: dsprep takes it and gives it back."""
    ranks[1].kill()
    ranks[1].wait()
    on(0, "ip", "addr", "del", "10.200.0.1/24", "dev", RAIL[0])
    tried = wait(lambda: "listen on 10.200.0.1" in log_of(0), 8)
    time.sleep(1)
    say(tried is not None and ranks[0].poll() is None, "rank 0 outlives its address", log_of(0)[-500:])
    on(0, "ip", "addr", "add", "10.200.0.1/24", "dev", RAIL[0])
    ranks[1] = start(1)
    back = wait(lambda: health()["status"] == "ok", 10)
    events = []
    if back is not None:
        answer(events)
    say(back is not None and (tokens, "".join(e[1] for e in events)) == want, "with the address back the group forms again",
        f"{health()}\n{log_of(0)[-500:]}")


def main():
    subprocess.run(["cp", f"{BUILD}/dsengine", f"{RUN}/dsengine"], check=True)
    subprocess.run(["cp", "-r", "tests/fixtures/demo-model", f"{RUN}/model"], check=True)
    subprocess.run(["chmod", "-R", "a+rX", RUN], check=True)
    with open(f"{RUN}/secret", "wb") as f:
        f.write(os.urandom(32))
    os.chmod(f"{RUN}/secret", 0o600)
    ranks = [start(0), start(1)]
    try:
        if wait(lambda: health()["status"] == "ok", 20) is None:
            say(False, "two ranks over two rails are ok", log_of(0)[-500:] + log_of(1)[-500:])
            return
        events, begin = [], time.monotonic()
        undisturbed = answer(events)
        pace, want = time.monotonic() - begin, (tokens, "".join(e[1] for e in events))
        say(undisturbed and len(events) > 50, f"the undisturbed answer has {len(events)} tokens in {pace:.1f} s")
        stats = []
        for kind in (Down(1), Down(0), Silent(0), Silent(1)):
            misses = []
            for i in range(CUTS // 2):
                m, noticed, gap, back = one(kind, rng.randrange(2), want)
                stats.append((noticed, gap, back))
                misses += [f"cut {i}: {x}" for x in m]
            say(not misses, f"{kind.name}: {CUTS // 2} cuts at random instants (seed {seed})", "\n   ".join(misses[:8]))
        print("noticed after %.2f s at most, longest wait for a token %.2f s, ok again after %.2f s at most" % tuple(max(s[i] for s in stats) for i in range(3)))
        # The last repair must carry traffic, not only be called ok.
        before = tx_bytes(0)
        answer([])
        carried = [now - then for now, then in zip(tx_bytes(0), before)]
        say(min(carried) * 4 >= sum(carried), f"after all repairs both rails carry: {carried} bytes")
        without_address(ranks, want)
    finally:
        for r in ranks:
            r.terminate()
        status = [r.wait(10) for r in ranks]
        say(status == [0, 0], "both ranks end in order", f"exit statuses {status}\n{log_of(0)[-800:]}\n{log_of(1)[-800:]}")


main()
sys.exit(1 if failed else 0)
