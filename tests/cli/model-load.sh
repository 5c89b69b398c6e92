#!/bin/bash
# model-load.sh: what loading the demo model costs: bytes read per rank, memory, time to ready.
#
# Expected bytes are computed here from the shards' headers, by name: a rank reads its part of every
# sharded tensor, the whole of every other one of the backbone, and nothing of the draft layers.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
exe=$B/dsengine
if [ ! -x "$exe" ]; then
	echo "no $exe: build first"
	exit 77
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
san=0
grep -q __asan_init "$exe" && san=1

python3 - "$exe" tests/fixtures/demo-model "$san" <<'PY'
import glob, json, os, resource, struct, subprocess, sys

exe, model, san = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
CUT = (".attn_sink", ".attn.wq_b.", ".attn.wo_a.", ".attn.wo_b.", ".experts.", ".shared_experts.",
       "head.weight")
failed = False

def say(good, name, detail=""):
    global failed
    failed |= not good
    print(("ok " if good else "not ok ") + name + ("" if good else "\n  " + detail), flush=True)

def sizes():
    half = whole = table = 0
    for path in glob.glob(model + "/*.safetensors"):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, t in header.items():
            n = t["data_offsets"][1] - t["data_offsets"][0]
            if name.startswith("mtp."):
                continue
            if ".engram.embed." in name:
                table += n
            elif any(c in name for c in CUT):
                half += n
            else:
                whole += n
    return half, whole, table

def generate(world):
    out = subprocess.run([exe, "generate", "-m", model, "--world", str(world), "--prompt-ids",
                          "0,1266,990,1267,1270", "-n", "2", "--json"],
                         capture_output=True, timeout=120, text=True)
    return json.loads(out.stdout) if out.returncode == 0 else sys.exit("not ok generate runs\n" + out.stderr)

half, whole, table = sizes()
one, two = generate(1), generate(2)
read = [r["weight_read_bytes"] for r in one["ranks"]]
say(read == [half + whole + table], "one rank reads every tensor of the backbone once", str(read))
read = [r["weight_read_bytes"] for r in two["ranks"]]
# Engram columns are cut whole, and primes differ: only their sum is the table.
say(sum(read) == half + table + 2 * whole, "two ranks read every sharded byte once", str(read))
say(all(half // 2 + whole < r < half // 2 + whole + table * 0.55 for r in read),
    "each of two ranks reads half of every sharded tensor", str(read))
held = [r["weight_bytes"] for r in two["ranks"]]
say(max(held) < one["ranks"][0]["weight_bytes"] * (half / 2 + whole + table * 0.55) / (half + whole + table),
    "each of two ranks holds half of them", str(held))
say(one["timings"]["load_ms"] < 1000, "the demo model is ready within a second", str(one["timings"]))
size = sum(os.path.getsize(p) for p in glob.glob(model + "/*.safetensors"))
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
name = "resident memory stays below twice the model and 64 MiB"
if san:
    print("skip " + name + ": a sanitizer keeps freed memory")
else:
    say(peak < 2 * size + (64 << 20), name, "%d bytes, model %d" % (peak, size))
sys.exit(failed)
PY
