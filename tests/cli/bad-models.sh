#!/bin/bash
# bad-models.sh: `dsengine generate` on models that are broken, one way each.
#
# Every case is a copy of the demo model's directory (links, and a real copy of what is damaged). It
# must end in exit status 1 within seconds, say nothing on stdout, and name on stderr the file, the
# tensor or the field, and the reason. Usage errors are 64. The undamaged copy must work.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
exe=$PWD/$B/dsengine
src=$PWD/tests/fixtures/demo-model
if [ ! -x "$exe" ]; then
	echo "no $exe: build first"
	exit 77
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
# A command started by root gives root up: it must be able to read the copies afterwards.
chmod 755 "$work"
m=$work/model
failed=0

say() { # STATUS NAME
	if [ "$1" = 0 ]; then
		echo "ok $2"
		return
	fi
	echo "not ok $2"
	echo "  exit status $rc; stderr:"
	head -n 5 "$work/err" | sed 's/^/  /'
	failed=1
}

fresh() { # [FILE...]: those become real copies
	rm -rf "$m"
	mkdir -m 755 "$m"
	ln -s "$src"/* "$m"/
	local f
	for f in "$@"; do
		rm "$m/$f"
		cp "$src/$f" "$m/$f"
		chmod 644 "$m/$f"
	done
}

run() { # [OPTION...]: one token from three ids unless options say otherwise
	timeout 30 "$exe" generate -m "$m" "$@" >"$work/out" 2>"$work/err" </dev/null
	rc=$?
}

# Status 1, silence on stdout, every pattern on stderr.
refused() { # NAME PATTERN...
	local name=$1 p bad=0
	shift
	[ "$rc" = 1 ] && [ ! -s "$work/out" ] || bad=1
	for p in "$@"; do grep -qF -- "$p" "$work/err" || bad=1; done
	say $bad "$name"
}

ids=(--prompt-ids "0,1266,990" -n 1)
s1=model-00001-of-00004.safetensors s4=model-00004-of-00004.safetensors
index=model.safetensors.index.json

# Replaces the first OLD in FILE by NEW. In shards both must have one length.
edit() { # FILE OLD NEW
	python3 - "$m/$1" "$2" "$3" <<'PY' || { echo "not ok edit $1"; exit 1; }
import sys
path, old, new = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
data = open(path, "rb").read()
if old not in data or (path.endswith(".safetensors") and len(old) != len(new)):
    sys.exit("no such text, or another length")
open(path, "wb").write(data.replace(old, new, 1))
PY
}

fresh
run "${ids[@]}"
[ "$rc" = 0 ]
say $? "the undamaged copy answers"

# ---- files that are not there, or not what they should be
rm -rf "$m"
run "${ids[@]}"
refused "no directory" "$m"
mkdir -m 755 "$m"
run "${ids[@]}"
refused "an empty directory" config.json
fresh && rm "$m/config.json"
run "${ids[@]}"
refused "no config.json" config.json
fresh && rm "$m/engram_token_map.bin"
run "${ids[@]}"
refused "no Engram token map" engram_token_map.bin
fresh && rm "$m/$s1"
run "${ids[@]}"
refused "a shard is missing" "$index" "$s1"
fresh && rm "$m"/*.safetensors "$m/$index"
run "${ids[@]}"
refused "no shards at all" "no *.safetensors file"
fresh && rm "$m/$s4" && mkfifo "$m/$s4"
run "${ids[@]}"
refused "a shard that is a FIFO" "$s4" "not a regular file"
fresh && rm "$m/$s4" && ln -s /nonexistent "$m/$s4"
run "${ids[@]}"
refused "a shard that is a dangling link" "$s4"
fresh && rm "$m/$s4" && printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0' >"$m/$s4"
run "${ids[@]}"
refused "a shard of another format" "$s4" GGUF

# ---- shards
fresh $s1 && truncate -s -100 "$m/$s1"
run "${ids[@]}"
refused "a truncated shard" "$s1" truncated
fresh $s1 && truncate -s 4 "$m/$s1"
run "${ids[@]}"
refused "a shard of four bytes" "$s1" "too short"
fresh $s1 && printf x >>"$m/$s1"
run "${ids[@]}"
refused "a byte too many" "$s1" "belong to no tensor"
fresh $s1 && printf '\377\377\377\377\377\377\377\177' | dd of="$m/$s1" conv=notrunc status=none
run "${ids[@]}"
refused "a header length that lies" "$s1" "header length"
fresh $s1 && edit $s1 '"layers.0.attn.wkv.weight":' '"layers.0.attn.wkv.weight";'
run "${ids[@]}"
refused "a header that is no JSON" "$s1" "not JSON"
fresh $s1 && edit $s1 '"layers.0.attn.wkv.weight"' '"layers.0.attn.wkv.weighs"'
run "${ids[@]}"
refused "a tensor is missing" layers.0.attn.wkv.weight missing
rm "$m/$index"
run "${ids[@]}"
refused "a tensor is missing, without an index" layers.0.attn.wkv.weight "missing tensor"
fresh $s1 && edit $s1 '"layers.0.attn.wq_a.weight":{"dtype":"F8_E4M3"' '"layers.0.attn.wq_a.weight":{"dtype":"F8_E5M2"'
run "${ids[@]}"
refused "a tensor of another dtype" "$s1" layers.0.attn.wq_a.weight F8_E5M2
fresh $s1 && edit $s1 '"layers.0.attn.wq_a.weight":{"dtype":"F8_E4M3","shape":[64,128]' '"layers.0.attn.wq_a.weight":{"dtype":"F8_E4M3","shape":[128,64]'
run "${ids[@]}"
refused "a tensor of another shape" "$s1" layers.0.attn.wq_a.weight "[128, 64]" "[64, 128]"
fresh $s1 && edit $s1 '"data_offsets":[0,327680]' '"data_offsets":[0,327682]'
run "${ids[@]}"
refused "offsets that overlap" "$s1" embed.weight
fresh $s1 && cp "$src/$s1" "$m/model-00005-of-00004.safetensors" && rm "$m/$index"
run "${ids[@]}"
refused "a tensor in two shards" "holds a tensor of this name"
fresh $index && edit $index "\"norm.weight\": \"model-00002" "\"norm.weight\": \"model-00001"
run "${ids[@]}"
refused "an index that disagrees with the shards" "$index" norm.weight
fresh $index && edit $index '"total_size": 6680984' '"total_size": 6680983'
run "${ids[@]}"
refused "an index with another total" "$index" total_size

# ---- config and token map
fresh config.json && truncate -s 500 "$m/config.json"
run "${ids[@]}"
refused "a truncated config" config.json "not JSON"
fresh config.json && edit config.json '"hidden_size": 128' '"hidden_size": 160'
run "${ids[@]}"
refused "a config of another width" embed.weight "shape [1280, 128]"
fresh config.json && edit config.json '"num_experts_per_tok": 2' '"num_experts_per_tok": 9'
run "${ids[@]}"
refused "a config that contradicts itself" config.json num_experts_per_tok
fresh config.json && edit config.json '"vocab_size": 1280' '"vocab_size": 18446744073709551616'
run "${ids[@]}"
refused "a number that does not fit" config.json
fresh config.json && edit config.json '"o_groups": 4' '"o_groups": 3'
run "${ids[@]}"
refused "heads that groups do not divide" num_attention_heads o_groups "world 1"
fresh config.json && edit config.json '"engram_vocab_size": 3000' '"engram_vocab_size": 3100'
run "${ids[@]}"
refused "Engram rows that are not the primes' sum" engram_num_embeddings
fresh engram_token_map.bin && truncate -s 5119 "$m/engram_token_map.bin"
run "${ids[@]}"
refused "a short token map" engram_token_map.bin 5119
fresh engram_token_map.bin && printf '\377\377\0\0' | dd of="$m/engram_token_map.bin" bs=1 seek=400 conv=notrunc status=none
run "${ids[@]}"
refused "a token map with a class too high" engram_token_map.bin "token 100"

# ---- two ranks: the one that finds it need not be rank 0
fresh $s1 && truncate -s -100 "$m/$s1"
run --world 2 "${ids[@]}"
refused "a truncated shard at world 2" "$s1" truncated
fresh config.json && edit config.json '"o_groups": 4' '"o_groups": 1'
run --world 2 "${ids[@]}"
refused "fewer groups than ranks" num_attention_heads o_groups "world 2"

# ---- ids
fresh
run --prompt-ids 0,1280 -n 1
refused "an id outside the vocabulary" 1280
run --prompt-ids 0,4294967296 -n 1
[ "$rc" = 1 ] || [ "$rc" = 64 ]
say $? "an id that does not fit"
run --prompt-ids 0,x -n 1
[ "$rc" = 64 ] || [ "$rc" = 1 ]
say $? "an id that is no number"

# ---- wrong bytes inside a tensor are no error of form
damage() { # NAME STEP EXPRESSION: every STEP-th byte B of the tensor becomes EXPRESSION
	python3 - "$m/$s1" "$1" "$2" "$3" <<'PY' || exit 1
import json, struct, sys
path, name, step, rule = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
data = bytearray(open(path, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
at = json.loads(data[8 : 8 + size])[name]["data_offsets"]
for i in range(8 + size + at[0], 8 + size + at[1], step):
    data[i] = eval(rule, {"B": data[i]})
open(path, "wb").write(data)
PY
}

fresh
run "${ids[@]}" --dump-logits "$work/a"
fresh $s1 && damage layers.0.attn.wkv.weight 3 "B ^ 0x80"
run "${ids[@]}" --dump-logits "$work/b"
[ "$rc" = 0 ] && [ -s "$work/a" ] && [ -s "$work/b" ] && ! cmp -s "$work/a" "$work/b"
say $? "other weights give other logits"
for world in 1 2; do
	fresh $s1 && damage layers.2.attn.wkv.weight 1 "0x7f"
	run --world $world "${ids[@]}"
	refused "weights that are no numbers, world $world" "layer 2" "rank" finite
done
exit $failed
