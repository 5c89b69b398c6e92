"""tokens.py DSENGINE MODEL: tokens per second of `dsengine generate` at world 1 and 2, median of five runs.

Prompt of 256 ids, then 256 forced ids (an end token cannot cut a run short), whole processes, native
arithmetic, one run after the other in turn. "touched" is the weight bytes that one decoded token reads, over
all ranks; "exchanged" what the ranks send for it. The last line is JSON.
"""
import json
import os
import statistics
import subprocess
import sys

ENGINE, MODEL = sys.argv[1:3]
RUNS, N = 5, 256
prompt = ",".join(str(3 + (7 * i * i + 31 * i) % 1200) for i in range(N))
forced = ",".join(str(3 + (11 * i * i + 17 * i) % 1200) for i in range(N + 1))


def runs_here(kernels):
    return subprocess.run([ENGINE, "generate", "-m", MODEL, "--prompt-ids", "1", "-n", "1", "--kernels", kernels],
                          capture_output=True).returncode == 0


CASES = [(world, s) for world in (1, 2) for s in ("ref", "scalar", "neon", "avx2", "avx512") if runs_here(s)]


def run(world, kernels):
    p = subprocess.Popen([ENGINE, "generate", "-m", MODEL, "--world", str(world), "--kernels", kernels, "--prompt-ids", prompt,
                          "--force-ids", forced, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = json.loads(p.stdout.read())
    _, status, usage = os.wait4(p.pid, 0)
    assert status == 0
    t, ranks = out["timings"], out["ranks"]
    return {"decode": N / t["decode_ms"] * 1e3, "prefill": N / t["prefill_ms"] * 1e3, "load_ms": t["load_ms"], "rss_mib": usage.ru_maxrss / 1024,
            "touched": sum(r["touched_bytes"] for r in ranks), "exchanged": sum(r["exchange_bytes"] for r in ranks) / (2 * N)}


results = {c: [] for c in CASES}
for _ in range(RUNS):
    for c in CASES:
        results[c].append(run(*c))
print("world kernels  decode tok/s  prefill tok/s  load ms  peak MiB (rank 0)  touched B/token  exchanged B/token")
rows = []
for (world, kernels), r in results.items():
    m = {k: statistics.median(x[k] for x in r) for k in r[0]}
    rows.append({"world": world, "kernels": kernels, **{k: round(v, 2) for k, v in m.items()}})
    print(f"{world:5d} {kernels:7s} {m['decode']:13.0f} {m['prefill']:14.0f} {m['load_ms']:8.0f} {m['rss_mib']:18.1f} {m['touched']:16.0f} {m['exchanged']:18.0f}")
print(json.dumps({"bench": "tokens", "model": os.path.basename(MODEL), "runs": RUNS, "rows": rows}))
