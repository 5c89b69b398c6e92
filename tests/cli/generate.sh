#!/bin/bash
# generate.sh: `dsengine generate` from outside, on the demo model. The checks are in generate.py.
cd "$(dirname "$0")/../.." || exit 2
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
exec python3 tests/cli/generate.py
