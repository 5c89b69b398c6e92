#!/bin/bash
# arm64.sh: the kernel suites built for AArch64 and run under emulation: its sets (scalar, neon) equal
# the reference there, and the reference gives the bits that it gives on this processor.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
if [ "$(uname -m)" = aarch64 ]; then
	echo "this machine is one: the unit tests have run them" >&2
	exit 77
fi
cross=$B/arm64
t=$(mktemp -d) || exit 2
trap 'rm -rf "$t"' EXIT
nice make -s B="$cross" CC=aarch64-linux-gnu-gcc SAN= "$cross/tests/cross/kern_tests" >"$t/build" 2>&1 || {
	tail -n 20 "$t/build" >&2
	echo "not ok the kernel suites build for AArch64"
	exit 1
}
make -s "$B/tests/cross/kern_tests" >"$t/build" 2>&1 || {
	tail -n 20 "$t/build" >&2
	echo "not ok the kernel suites build without libraries"
	exit 1
}
KERN_BITS=1 qemu-aarch64 -L /usr/aarch64-linux-gnu "$cross/tests/cross/kern_tests" >"$t/arm64" 2>"$t/err" &
arm=$!
KERN_BITS=1 "$B/tests/cross/kern_tests" >"$t/here" || echo "not ok the kernel suites pass here without libraries"
wait $arm || tail -n 5 "$t/err" >&2
sed -n 's/^\(not \)\{0,1\}ok /&AArch64: /p' "$t/arm64"
grep '^bits ' "$t/arm64" >"$t/a"
grep '^bits ' "$t/here" >"$t/b"
n=$(wc -l <"$t/a")
if [ "$n" -gt 70 ] && cmp "$t/a" "$t/b"; then
	echo "ok AArch64: $n results of the reference have this processor's bits"
else
	diff "$t/a" "$t/b" | head -n 10 >&2
	echo "not ok AArch64: the reference's $n results have this processor's bits"
fi
