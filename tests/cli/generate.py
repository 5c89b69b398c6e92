"""Checks of `dsengine generate` on the demo model: golden ids, equal bits, accounting, errors.

Prints a line per check, "ok NAME" or "not ok NAME", and ends with status 1 if one failed. Every run
has a time limit; everything it writes lies in one temporary directory that is removed at the end.
"""
import re
import json, os, shutil, signal, struct, subprocess, sys, tempfile, time

PROG = os.path.join(os.environ.get("B", "build"), "dsengine")
MODEL = "tests/fixtures/demo-model"
LIMIT_S = 120
failed = 0
tmp = tempfile.mkdtemp(prefix="dsengine-generate-")
golden = json.load(open(MODEL + "/golden.json"))
config = json.load(open(MODEL + "/config.json"))["text_config"]
HELLO = golden[0]


def check(name, good, detail=""):
    global failed
    print(("ok " if good else "not ok ") + name, flush=True)
    if not good:
        failed += 1
        print("    " + str(detail)[:600].replace("\n", "\n    "), flush=True)


def run(*options, model=MODEL):
    args = [PROG, "generate", "-m", model] + [str(o) for o in options]
    return subprocess.run(args, capture_output=True, timeout=LIMIT_S)


def ids(values):
    return ",".join(map(str, values))


def gen(prompt, *options, model=MODEL):
    """--json of one run, or None with its errors printed."""
    r = run("--prompt-ids", ids(prompt), "--json", *options, model=model)
    if r.returncode != 0:
        print("    " + r.stderr.decode(errors="replace"), file=sys.stderr)
        return None
    return json.loads(r.stdout)


def dump(prompt, *options, model=MODEL):
    """The bytes of --dump-logits and --hash-layers, and the JSON."""
    logits, hashes = tmp + "/logits", tmp + "/hashes"
    out = gen(prompt, "--dump-logits", logits, "--hash-layers", hashes, *options, model=model)
    return open(logits, "rb").read(), open(hashes, "rb").read(), out


def copy_model(name):
    path = os.path.join(tmp, name)
    shutil.copytree(MODEL, path, ignore=shutil.ignore_patterns("golden.json", "eval.json", "README.md"))
    for f in os.listdir(path):
        os.chmod(os.path.join(path, f), 0o644)
    return path


def tensors(model):
    """name -> (file, offset of its data, bytes, shape)"""
    found = {}
    for name in sorted(os.listdir(model)):
        if name.endswith(".safetensors"):
            with open(os.path.join(model, name), "rb") as f:
                size, = struct.unpack("<Q", f.read(8))
                for t, e in json.loads(f.read(size)).items():
                    if t != "__metadata__":
                        begin, end = e["data_offsets"]
                        found[t] = (os.path.join(model, name), 8 + size + begin, end - begin, e["shape"])
    return found


def poke(model, tensor, at, value):
    """One byte of a tensor, value or function of the byte there."""
    file, offset, _, _ = tensors(model)[tensor]
    with open(file, "r+b") as f:
        f.seek(offset + at)
        old = f.read(1)[0]
        f.seek(offset + at)
        f.write(bytes([value(old) if callable(value) else value]))


def processes():
    """Command lines of every dsengine that runs here from this test's program."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open("/proc/%s/cmdline" % pid, "rb").read()
        except OSError:
            continue
        if b"generate\0-m\0" in line and tmp.encode() in line:
            found.append(int(pid))
    return found


# ------------------------------------------------------------------ numbers

def golden_ids():
    wrong = []
    for g in golden:
        out = gen(g["ids"], "--numerics", "exact", "-n", len(g["fp32"]["ids"]))
        if out is None or out["tokens"] != g["fp32"]["ids"]:
            wrong.append(g["name"])
        elif out["finish"] != ("stop" if g["fp32"]["stopped"] else "length"):
            wrong.append(g["name"] + ": finish")
        elif not (g["fp32"]["text"] == out["text"] + ("<｜end▁of▁sentence｜>" if g["fp32"]["stopped"] else "")):
            wrong.append(g["name"] + ": text")
    check("fp32: ids, text and finish of all %d golden prompts" % len(golden), not wrong and len(golden) == 15, wrong)


def equal_bits():
    sets = [s for s in ("avx512", "avx2", "neon", "scalar", "ref")
            if run("--prompt-ids", "0", "-n", 1, "--kernels", s).returncode == 0]
    worlds, kernels, chunks = [], [], []
    for g in golden:
        for numerics in ("native", "exact"):
            same = ("-n", 6, "--numerics", numerics)
            one = dump(g["ids"], *same)
            steps = len(one[2]["tokens"])
            if len(one[0]) != steps * config["vocab_size"] * 4 or one[1].count(b"\n") != (len(g["ids"]) + steps - 1) * config["num_hidden_layers"]:
                worlds.append(g["name"] + ": size of the files")
            two = dump(g["ids"], *same, "--world", 2)
            if two[:2] != one[:2] or two[2]["tokens"] != one[2]["tokens"]:
                worlds.append("%s %s" % (g["name"], numerics))
            if len(g["ids"]) > 60:
                continue
            for s in sets:
                if dump(g["ids"], *same, "--kernels", s)[:2] != one[:2]:
                    kernels.append("%s %s %s" % (g["name"], numerics, s))
            for chunk in (1, 7):
                if dump(g["ids"], *same, "--prefill-chunk", chunk)[:2] != one[:2]:
                    chunks.append("%s %s %d" % (g["name"], numerics, chunk))
    check("worlds 1 and 2: the same logits and layer hashes for every golden prompt, native and fp32", not worlds, worlds)
    check("chunked prefill: the same", not chunks, chunks)
    check("kernel sets: the same with every one that runs here", not kernels and len(sets) >= 2, kernels or sets)
    three = dump(HELLO["ids"], "-n", 4, "--leaves", 3, "--numerics", "exact")
    four = dump(HELLO["ids"], "-n", 4, "--leaves", 4, "--numerics", "exact")
    check("three leaves are another sum, and nearly the same numbers",
          three[0] != four[0] and three[2]["tokens"] == four[2]["tokens"])


def profile():
    """The table's rows are operations; what they took, and what lies between them, is the whole."""
    for world in (1, 2):
        plain = dump(HELLO["ids"], "-n", 4, "--world", world)
        r = run("--prompt-ids", ids(HELLO["ids"]), "-n", 4, "--world", world, "--profile", "--dump-logits", tmp + "/logits")
        said = r.stderr.decode(errors="replace")
        tables = re.findall(r"^(prefill|decode), kernels (\w+): ([0-9.]+) ms;.*\n(?:operation .*\n)((?:.* [0-9.]+%.*\n)+)", said, re.M)
        good = [t[0] for t in tables] == ["prefill", "decode"] and open(tmp + "/logits", "rb").read() == plain[0]
        for _, _, wall, rows in tables:
            rows = re.findall(r"^(\S.*?\S)  +(?:(\d+) +)?([0-9.]+) +([0-9.]+)%", rows, re.M)
            names = [row[0] for row in rows]
            good = good and {"attention", "experts", "linear fp8", "norm", "hyper predict", "between them"} <= set(names)
            good = good and abs(sum(float(row[2]) for row in rows) - float(wall)) < 0.02 * len(rows)
        check("--profile at world %d: every millisecond has a place, the logits are the same" % world, good, said)


def forced_and_sampled():
    g = golden[8]
    given = g["fp32"]["ids"][:5] + [config.get("eos_token_id", 1), 7]
    logits, _, out = dump(g["ids"], "--force-ids", ids(given))
    check("forced ids: a row each, no stop at the end token",
          out["tokens"] == given and out["finish"] == "length" and len(logits) == len(given) * config["vocab_size"] * 4, out)
    free, _, _ = dump(g["ids"], "-n", 5, "--numerics", "exact")
    forced, _, _ = dump(g["ids"], "--force-ids", ids(g["fp32"]["ids"][:5]), "--numerics", "exact")
    check("forcing what would be chosen changes nothing", free == forced)

    hot = ("--temperature", 1.5, "-n", 12)
    a = gen(g["ids"], *hot, "--seed", 5)
    check("a seed gives the same draws, in another world too",
          a["tokens"] == gen(g["ids"], *hot, "--seed", 5)["tokens"] == gen(g["ids"], *hot, "--seed", 5, "--world", 2)["tokens"])
    b = gen(g["ids"], *hot)
    c = gen(g["ids"], *hot)
    check("without a seed a random one is used and told",
          b["seed"] != c["seed"] and gen(g["ids"], *hot, "--seed", b["seed"])["tokens"] == b["tokens"])


def prompts():
    g = golden[8]
    want = gen(g["ids"], "-n", 40)
    r = run("--prompt", g["text"], "-n", 40)
    check("--prompt: the text goes to standard output alone", r.returncode == 0 and r.stdout.decode() == want["text"] + "\n", r)
    file = tmp + "/ids"
    open(file, "w").write("\n".join(map(str, g["ids"])) + ",\n")
    out = json.loads(run("--prompt-ids-file", file, "-n", 40, "--json").stdout)
    check("--prompt-ids-file", out["tokens"] == want["tokens"] and out["prompt_ids"] == g["ids"])
    open(file, "w").write(json.dumps({"messages": [{"role": "user", "content": "What is a rail?"}], "thinking": {"type": "disabled"}}))
    r = run("--messages", file, "-n", 40, "--json")
    out = json.loads(r.stdout) if r.returncode == 0 else {}
    check("--messages: a chat/completions body", out.get("prompt_ids") == g["ids"] and out.get("text") == want["text"], r)
    open(file, "w").write('{"messages": [')
    r = run("--messages", file)
    check("a broken body names file and line", r.returncode == 1 and file.encode() in r.stderr and b"line 1" in r.stderr, r)
    open(file, "w").write("1, 2, x3")
    r = run("--prompt-ids-file", file)
    check("a broken id file names file and place", r.returncode == 1 and file.encode() in r.stderr and b'"x3" at byte 6' in r.stderr, r)


# ------------------------------------------------------------------ shares

def rows_of(tensor):
    """What a rank of world 2 holds: 'half' of rows or columns, or all."""
    if tensor.startswith("mtp."):
        return "none"
    for part in (".attn.attn_sink", ".attn.wq_b.", ".attn.wo_a.", ".attn.wo_b.", ".ffn.experts.", ".ffn.shared_experts."):
        if part in tensor:
            return "half"
    return "half" if tensor == "head.weight" else "table" if ".engram.embed." in tensor else "all"


def accounting():
    one = gen(HELLO["ids"], "-n", 5)
    two = gen(HELLO["ids"], "-n", 5, "--world", 2)
    total = {"half": 0, "all": 0, "table": 0, "none": 0}
    for name, (_, _, size, _) in tensors(MODEL).items():
        total[rows_of(name)] += size
    check("world 1 reads every backbone tensor once, and no draft tensor",
          one["ranks"][0]["weight_read_bytes"] == total["half"] + total["all"] + total["table"], (one["ranks"], total))
    reads = [r["weight_read_bytes"] for r in two["ranks"]]
    check("world 2: each rank reads half of every sharded tensor",
          all(r - total["all"] - total["half"] // 2 > 0 for r in reads) and sum(reads) == 2 * total["all"] + total["half"] + total["table"], (reads, total))
    tables = [r - total["all"] - total["half"] // 2 for r in reads]
    check("and its columns of the Engram tables", sum(tables) == total["table"] and all(abs(t / total["table"] - 0.5) < 0.05 for t in tables), tables)
    held = [r["weight_bytes"] for r in two["ranks"]]
    whole = one["ranks"][0]["weight_bytes"]
    check("each holds no more than it read, but for the layout",
          all(h < 1.15 * r for h, r in zip(held + [whole], reads + [one["ranks"][0]["weight_read_bytes"]])), (held, reads, whole))
    rows = len(HELLO["ids"]) + 5 - 1
    reduce_bytes = config["num_hidden_layers"] * 2 * config["hidden_size"] * 4 * rows
    columns = (config["engram_max_ngram_size"] - 1) * config["engram_n_heads"]
    row = config["engram_head_dim"] + config["engram_head_dim"] // 32
    engram_bytes = len(config["engram_layer_ids"]) * columns // 2 * row * rows
    want = [(reduce_bytes, engram_bytes, 0), (reduce_bytes, engram_bytes, 5 * config["vocab_size"] // 2 * 4)]
    got = [(r["reduce_bytes"], r["engram_bytes"], r["head_bytes"]) for r in two["ranks"]]
    check("exchange: layers * 2 * hidden * 4 bytes a row, Engram rows, head", got == want and [r["exchange_bytes"] for r in two["ranks"]] == [sum(w) for w in want], (got, want))
    check("alone nothing is exchanged", one["ranks"][0]["exchange_bytes"] == 0)


def damage():
    """A byte that only one rank reads changes what comes out of both."""
    g = golden[8]
    clean = dump(g["ids"], "-n", 4, "--world", 2)[0]
    shape = tensors(MODEL)["layers.4.attn.wq_b.weight"][3]
    for rank in (0, 1):
        model = copy_model("damaged%d" % rank)
        for k in range(64):                                # one row of queries of a head of that rank
            poke(model, "layers.4.attn.wq_b.weight", (rank * shape[0] // 2 + 5) * shape[1] + k, lambda b: b ^ 0x80)
        bad = dump(g["ids"], "-n", 4, "--world", 2, model=model)[0]
        check("a damaged shard of rank %d changes the result" % rank, bad != clean and len(bad) == len(clean))
        file, offset, size, _ = tensors(model)["layers.5.ffn.experts.0.w1.scale"]
        for e in range(config["n_routed_experts"]):
            poke(model, "layers.5.ffn.experts.%d.w1.scale" % e, rank * size // 2 + 3, 0xff)   # E8M0 NaN
        r = run("--prompt-ids", ids(g["ids"]), "--world", 2, model=model)
        check("a value that is not finite on rank %d is that rank's" % rank,
              r.returncode == 1 and b"layer 5, rank %d" % rank in r.stderr, r)
    model = copy_model("short")
    os.truncate(model + "/model-00002-of-00004.safetensors", 1000000)
    r = run("--prompt-ids", "1", "--world", 2, model=model)
    check("a shard that ends early is named", r.returncode == 1 and b"model-00002-of-00004.safetensors" in r.stderr, r)
    os.unlink(model + "/model-00002-of-00004.safetensors")
    r = run("--prompt-ids", "1", model=model)
    check("a missing shard is named", r.returncode == 1 and b"model-00002-of-00004.safetensors" in r.stderr, r)


# ------------------------------------------------------------------ refusals

def refusals():
    p = ("--prompt-ids", "1")
    usage = [
        (), ("--prompt-ids",), p + ("--prompt", "x"), p + ("--draft", "off"), p + ("--numeric", "exact"),
        p + ("--world", "3"), p + ("--world", "0"), p + ("--world", "1x"), p + ("--leaves", "5"), p + ("--leaves", "3", "--world", "2"),
        p + ("--transport", "shm"), p + ("--numerics", "bf16"), p + ("--kernels", "cuda"), p + ("-n", "-1"), p + ("-n", "0"),
        p + ("--temperature", "nan"), p + ("--temperature", "-1"), p + ("--seed", "-1"), p + ("--seed", "18446744073709551616"),
        p + ("--prefill-chunk", "0"), p + ("--json=yes",), p + ("stray",), p + ("--force-ids", ""), p + ("--force-ids", "a"),
        ("--prompt-ids", "1,,x"), ("--prompt-ids", "-1"), ("--prompt-ids", ""), p + ("--user", "no-such-account-here"),
    ]
    wrong = [u for u in usage for r in [run(*u)] if r.returncode != 64 or r.stdout or not r.stderr]
    check("wrong usage is exit 64 with a word on standard error", not wrong, wrong)
    for option, words in (("--kernels", b"ref|scalar|avx2|avx512|neon"), ("--numerics", b"exact|native"), ("--transport", b"auto|tcp")):
        r = run(*p, option, "nosuch")
        check("a value of %s that is none is told all that are" % option, r.returncode == 64 and b"expected " + words + b"\n" in r.stderr, r)
    r = subprocess.run([PROG, "generate", "--prompt-ids", "1"], capture_output=True, timeout=LIMIT_S)
    check("no model is wrong usage", r.returncode == 64 and b"-m" in r.stderr, r)
    r = subprocess.run([PROG, "generate", "--help"], capture_output=True, timeout=LIMIT_S)
    check("--help names every option", r.returncode == 0 and all(o.encode() in r.stdout for o in ("--force-ids", "--hash-layers", "--prefill-chunk", "--user")))

    page = open("man/dsengine.8").read()
    page = page[page.index(".Ss Generate"):page.index(".Ss Keygen")]
    documented = {"-" + l.split()[2] for l in page.splitlines() if l.startswith(".It Fl ")}
    helped = {w.split()[0] for w in r.stdout.decode().splitlines() if w.startswith("  -")} - {"--help"}
    check("the man page has every option, and no other", documented == helped, documented ^ helped)
    out = gen(HELLO["ids"], "-n", 1, "--temperature", 1)
    keys = set(out) | set(out["timings"]) | set(out["ranks"][0]) - {"rank"}
    check("and every JSON field", all(any(k + e in page for e in (" ", "\n")) for k in keys), keys)

    for name, options, words in (
            ("an id outside the vocabulary", ("--prompt-ids", "5,1280"), (b"1280",)),
            ("one beyond 32 bits", ("--prompt-ids", "99999999999999999999"), (b"99999999999999999999",)),
            ("a forced one", p + ("--force-ids", "1,5000"), (b"5000",)),
            ("one found in world 2", ("--world", "2", "--prompt-ids", "1280"), (b"1280",)),
            ("a prompt longer than the model's positions", ("--prompt-ids", ids([5] * 4097)), (b"4097", b"4096")),
            ("an empty prompt", ("--prompt", ""), (b"no tokens",)),
            ("an output file that cannot be", p + ("--dump-logits", tmp + "/none/x"), (b"/none/x",))):
        r = run(*options)
        check("refused, exit 1: " + name, r.returncode == 1 and all(w in r.stderr for w in words) and not r.stdout, r)

    r = run("--prompt-ids", "1", model=tmp + "/nothing")
    check("a missing model directory is named", r.returncode == 1 and b"/nothing" in r.stderr, r)
    model = copy_model("words")
    os.unlink(model + "/tokenizer.json")
    r = run("--prompt", "x", model=model)
    check("no tokenizer: --prompt is refused naming the file", r.returncode == 1 and b"tokenizer.json" in r.stderr, r)
    out = gen(HELLO["ids"], "-n", 4, model=model)
    check("no tokenizer: ids work, text is empty", out["tokens"] == HELLO["quantised"]["ids"][:4] and out["text"] == "", out)
    os.chmod(model, 0o700)
    for f in os.listdir(model):
        os.chmod(os.path.join(model, f), 0o600)
    out = gen(HELLO["ids"], "-n", 4, "--world", 2, model=model)
    check("a model that only its owner may read, opened before root is given up", out is not None and len(out["tokens"]) == 4)
    text = open(model + "/config.json").read()
    open(model + "/config.json", "w").write(text.replace('"o_groups": 4', '"o_groups": 1'))
    r = run("--prompt-ids", "1", "--world", 2, model=model)
    check("a world that the model cannot be cut into is refused by name",
          r.returncode == 1 and all(w in r.stderr for w in (b"num_attention_heads", b"o_groups", b"2")), r)


def descriptors():
    """A closed descriptor's number goes to the next file that is opened: not to one of ours."""
    out = tmp + "/closed"
    args = [PROG, "generate", "-m", MODEL, "--prompt-ids", "1", "-n", "3", "--dump-logits", out]
    good, err = 1280 * 4 * 3, []
    for shut in ("0", "1", "2", "0 1 2", "0 2"):
        if os.path.exists(out):
            os.unlink(out)
        closing = " ".join(n + ">&-" for n in shut.split())
        r = subprocess.run(["bash", "-c", 'exec "$@" ' + closing, "-"] + args, capture_output=True, timeout=LIMIT_S)
        size = os.path.getsize(out) if os.path.exists(out) else -1
        fails = "1" in shut                                # the answer could not be told
        if r.returncode != (1 if fails else 0) or size > good or (not fails and size != good):
            err.append((shut, r, size))
    check("standard descriptors that are closed: nothing but logits in the file of logits", not err, err)

    model = copy_model("own")
    before = open(model + "/tokenizer.json", "rb").read()
    r = run("--prompt-ids", "1", "-n", "1", "--dump-logits", model + "/tokenizer.json", model=model)
    check("an output that is a file of the model is refused, the file whole", r.returncode == 64 and b"tokenizer.json" in r.stderr
          and open(model + "/tokenizer.json", "rb").read() == before, r)
    r = run("--prompt-ids", "1", "-n", "1", "--dump-logits", out, "--hash-layers", os.path.join(tmp, ".", "closed"))
    check("two outputs into one file are refused", r.returncode == 64 and b"--dump-logits" in r.stderr, r)
    r = run("--prompt-ids", "1", "-n", "1", "--dump-logits", out)
    check("an older output is replaced, not overwritten in part", r.returncode == 0 and os.path.getsize(out) == 1280 * 4, r)


    # ulimit counts blocks of 1024 bytes
    limited = ["bash", "-c", 'ulimit -f "$1"; shift; exec "$@"', "-"]
    r = subprocess.run(limited + ["1"] + args, capture_output=True, timeout=LIMIT_S)
    check("a limit on file sizes is an error that names the file", r.returncode == 1 and b"closed" in r.stderr and b"too large" in r.stderr, r)
    secret = tmp + "/secret"
    r = subprocess.run(limited + ["0", PROG, "keygen", secret], capture_output=True, timeout=LIMIT_S)
    check("a secret that cannot be written leaves no file", r.returncode == 1 and b"secret" in r.stderr and not os.path.exists(secret), r)


# ------------------------------------------------------------------ ends

def powers(pid):
    """What is not as it should be in any thread of a rank that was started as root."""
    want = {"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "", "NoNewPrivs": "1"}
    want.update({"Cap" + c: "0000000000000000" for c in ("Inh", "Prm", "Eff", "Bnd", "Amb")})
    wrong = []
    for task in os.listdir("/proc/%d/task" % pid):
        fields = dict(l.split(":", 1) for l in open("/proc/%d/task/%s/status" % (pid, task)).read().splitlines())
        wrong += [(pid, task, k, fields[k].split()) for k, v in want.items() if " ".join(fields[k].split()) != v]
    return wrong


def ends():
    """Whatever happens to one process, none stays behind and the user is told."""
    model = copy_model("ends")
    long = [PROG, "generate", "-m", model, "--prompt-ids", ids(golden[12]["ids"]), "--force-ids", ids([5] * 2000), "--world", "2"]
    long += ["--user", "65534"] if os.getuid() == 0 else []
    for name, victim, sig in (("a rank is killed", 1, signal.SIGKILL), ("the leader is killed", 0, signal.SIGKILL), ("the user interrupts", 0, signal.SIGINT)):
        p = subprocess.Popen(long, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.time() + 20
        while len(processes()) < 2 and time.time() < end:
            time.sleep(0.05)
        time.sleep(0.7)
        ranks = sorted(processes())                        # the parent is rank 0
        both = len(ranks) == 2 and ranks[0] == p.pid
        if both and victim == 1 and os.getuid() == 0:
            wrong = [w for pid in ranks for w in powers(pid)]
            check("started as root: every thread of both ranks is nobody without any capability", not wrong, wrong)
        if both:
            os.kill(ranks[victim], sig)
        try:
            _, said = p.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            p.kill()
            _, said = p.communicate()
            both = False
        end = time.time() + 5
        while processes() and time.time() < end:
            time.sleep(0.05)
        left = processes()
        good = both and not left and p.returncode != 0
        if victim == 1:
            good = good and p.returncode == 1 and b"rank 1: its process was ended by signal 9" in said
        check("no process stays behind when " + name, good, (ranks, left, p.returncode, said))
        for pid in left:
            os.kill(pid, signal.SIGKILL)


try:
    for part in (golden_ids, equal_bits, profile, forced_and_sampled, prompts, accounting, damage, refusals, descriptors, ends):
        try:
            part()
        except Exception as e:                             # a check that could not run has failed
            check(part.__name__ + " ran to its end", False, repr(e))
finally:
    shutil.rmtree(tmp, ignore_errors=True)
sys.exit(1 if failed else 0)
