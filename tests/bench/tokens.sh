#!/bin/bash
# tokens.sh: the demo model's tokens per second at world 1 and 2, and what a token touches; see tokens.py.
cd "$(dirname "$0")/../.." || exit 2
exec python3 tests/bench/tokens.py "${B:-build}/dsengine" tests/fixtures/demo-model
