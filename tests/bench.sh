#!/bin/bash
# bench.sh: every measurement of this build on this machine. Ratios count; absolute figures name the machine.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build}
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, $(awk '/MemTotal/{printf "%.0f GiB", $2/1048576}' /proc/meminfo), kernel $(uname -r), $(date -u +%F)"
for b in tests/bench/*.c; do
	[ -e "$b" ] || continue
	echo
	echo "== $(basename "$b" .c)"
	"$B/tests/bench/$(basename "$b" .c)" || exit 1
done
for s in tests/bench/*.sh; do
	[ -e "$s" ] || continue
	echo
	echo "== $(basename "$s" .sh)"
	"$s" || exit 1
done
