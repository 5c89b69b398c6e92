#!/bin/bash
# check.sh [SUITE...]: runs the tests and ends with "N passed, N failed, N skipped".
# Without arguments SUITES in the environment names them, else all run. "cli" stands for all of cli/.
#
# Every suite prints one line per test: "ok NAME", "not ok NAME" or "skip NAME: reason". A suite that
# exits non-zero without a "not ok" line counts as one failure; exit 77 with nothing said as one
# skip. Skips must stand in tests/skips.allow with their reason when CI is set: a test that silently
# stops running is a failure.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build}
export B
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0
[ $# -gt 0 ] || set -- ${SUITES:-}

suites() {
	echo "unit $B/tests/unit/runner"
	for s in tests/cli/*.sh; do [ -e "$s" ] && echo "$(basename "$(dirname "$s")")/$(basename "$s" .sh) $s"; done
	for p in tests/prog/*.c; do [ -e "$p" ] && echo "prog/$(basename "$p" .c) $B/tests/prog/$(basename "$p" .c)"; done
	for s in tests/lab/*.sh; do [ -e "$s" ] && echo "lab/$(basename "$s" .sh) $s"; done
}

wanted() {
	[ $# -gt 1 ] || return 0
	local name=$1 w
	shift
	for w in "$@"; do [ "$w" = "$name" ] || [ "${name#"$w"/}" != "$name" ] && return 0; done
	return 1
}

# A name that matches nothing would test nothing and say that all is well.
for w in "$@"; do
	found=0
	while read -r name _; do wanted "$name" "$w" && found=1; done < <(suites)
	[ $found = 1 ] || { echo "no suite is called $w; there are: $(suites | cut -d' ' -f1 | tr '\n' ' ')"; exit 2; }
done

while read -r name cmd; do
	wanted "$name" "$@" || continue
	start=$(date +%s%N)
	timeout -k 10 "${SUITE_S:-600}" "$cmd" >"$out/log" 2>"$out/err" </dev/null
	rc=$?
	ms=$((($(date +%s%N) - start) / 1000000))
	p=$(grep -c '^ok ' "$out/log")
	f=$(grep -c '^not ok ' "$out/log")
	s=$(grep -c '^skip ' "$out/log")
	why=""
	if [ $rc = 77 ] && [ $((p + f + s)) = 0 ]; then
		s=1
		why="skip $name: $(cat "$out/err" "$out/log" | grep . | tail -n 1)"
	elif [ $rc != 0 ] && [ "$f" = 0 ] && [ $rc != 77 ]; then
		f=1
		why="not ok $name: exit status $rc$([ $rc = 124 ] && echo ' (time limit)')"
	elif [ $rc = 0 ] && [ $((p + f + s)) = 0 ]; then
		f=1
		why="not ok $name: said nothing"
	fi
	printf '%-24s %4d passed %3d failed %3d skipped  %6d.%01d s\n' "$name" "$p" "$f" "$s" $((ms / 1000)) $((ms % 1000 / 100))
	if [ "$f" != 0 ]; then
		grep -A 6 '^not ok ' "$out/log" | sed 's/^/    /' | head -n 60
		[ -n "$why" ] && echo "    $why"
		echo "    --- last lines on standard error:"
		tail -n 15 "$out/err" | sed 's/^/    /'
	fi
	{ grep '^skip ' "$out/log"; [ "${why#skip}" != "$why" ] && echo "$why"; } | sed "s/^skip /    skip /" | tee -a "$out/skips"
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done < <(suites)

# A skip that nobody allowed is a failure on the machine where everything should run.
if [ -n "${CI:-}" ] && [ -s "$out/skips" ]; then
	while read -r line; do
		name=${line#skip }
		grep -v '^#' tests/skips.allow 2>/dev/null | cut -d'|' -f1 | sed 's/ *$//' | grep -qxF -- "${name%%:*}" && continue
		echo "not ok a skip that tests/skips.allow does not list: $name"
		failed=$((failed + 1))
	done <"$out/skips"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
