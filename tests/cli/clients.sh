#!/bin/bash
# clients.sh: the server as the official `openai` and `anthropic` packages see it; tests/peers/official.py.
# The packages come from PyPI into build/peers (once); as root the server runs as uid 65534.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
[ -x "$B/dsengine" ] || { echo "$B/dsengine is not built"; exit 1; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
python=$(tests/peers/venv.sh openai anthropic) || exit
cp "$B/dsengine" "$dir/dsengine" && cp -r tests/fixtures/demo-model "$dir/demo-model" || exit 2
user=()
if [ "$(id -u)" = 0 ]; then
	chmod -R a+rX "$dir"
	user=(--user 65534)
fi
"$python" tests/peers/official.py --engine "$dir/dsengine" --model "$dir/demo-model" --dir "$dir" "${user[@]}"
