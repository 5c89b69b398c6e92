#!/bin/bash
# fuzz.sh: runs every fuzz target on its stored corpus for FUZZ_S seconds. Prints "ok fuzz/NAME".
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build} S=${FUZZ_S:-10} bad=0
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
one() {
	local name=$1
	mkdir -p "$work/$name/new" "$work/$name/crash"
	# New finds go to a scratch corpus: the stored one changes only by hand.
	if (cd "$work/$name" && timeout -k 10 $((S + 120)) "$OLDPWD/$B/fuzz/$name" -max_total_time="$S" -rss_limit_mb=2048 -timeout=20 \
		-artifact_prefix="$work/$name/crash/" "$work/$name/new" "$OLDPWD/tests/fuzz/corpus/$name") >"$work/$name/log" 2>&1; then
		echo "ok fuzz/$name ($(grep -o 'stat::number_of_executed_units: *[0-9]*\|Done [0-9]* runs' "$work/$name/log" | tail -n 1))"
	else
		echo "not ok fuzz/$name"
		tail -n 30 "$work/$name/log"
		for f in "$work/$name"/crash/*; do [ -e "$f" ] && { mkdir -p "$B/fuzz-crashes" && cp "$f" "$B/fuzz-crashes/$name-$(basename "$f")" && echo "kept $B/fuzz-crashes/$name-$(basename "$f")"; }; done
		return 1
	fi
}
export -f one
export work B S
for f in tests/fuzz/*.c; do
	[ -e "$f" ] || continue
	mkdir -p "tests/fuzz/corpus/$(basename "$f" .c)"
	basename "$f" .c
done | xargs -r -P "$(nproc)" -I{} bash -c 'one {}' || bad=1
exit $bad
