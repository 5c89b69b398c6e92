#!/bin/bash
# serve.sh: the HTTP server as its clients see it, world 1 on loopback; the client is tests/peers/http_chat.py.
# As root the server runs as uid 65534 from a readable copy of binary and model.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
[ -x "$B/dsengine" ] || { echo "$B/dsengine is not built"; exit 1; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
cp "$B/dsengine" "$dir/dsengine" && cp -r tests/fixtures/demo-model "$dir/demo-model" || exit 2
user=()
if [ "$(id -u)" = 0 ]; then
	chmod -R a+rX "$dir"
	user=(--user 65534)
fi
python3 tests/peers/http_chat.py --engine "$dir/dsengine" --model "$dir/demo-model" --dir "$dir" "${user[@]}"
