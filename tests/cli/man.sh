#!/bin/bash
# man.sh: dsprep's man pages and its tables name the same things: commands, options, settings with
# their defaults and bounds, checks, operations. And what help prints is what the program takes.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
bad=0
"$B/tests/tools/prep_names" >"$W/names" || exit 2
"$B/dsprep" --help >"$W/help" || exit 2

same() { # same NAME FILE1 FILE2: equal sets
	sort -u "$2" >"$W/a"
	sort -u "$3" >"$W/b"
	if [ -s "$W/a" ] && diff "$W/a" "$W/b" >"$W/diff"; then echo "ok $1"; else
		echo "not ok $1 (< code, > page)"
		sed 's/^/   /' "$W/diff"
		bad=1
	fi
}
items() { # items PAGE SECTION MACRO: first words of the list items there
	awk -v want="$2" -v macro="$3" '/^\.S[hs]/ { name = $0; sub(/^\.S[hs] /, "", name) } name == want && $1 == ".It" && $2 == macro { print $3 }' "man/$1"
}

# Settings, section by section, each with its default and bounds in its own paragraph.
sed -n 's/^key //p' "$W/names" >"$W/code"
for s in $(sed -n 's/^key \([^ ]*\) .*/\1/p' "$W/names" | sort -u); do items dsprep.conf.5 "Section [$s]" Ic | sed "s/^/$s /"; done >"$W/page"
same "dsprep.conf.5 has every setting" "$W/code" "$W/page"
paragraph() { awk -v key="$1" '$1 == ".It" && $2 == "Ic" { on = $3 == key } /^\.S[hs]/ { on = 0 } on' man/dsprep.conf.5; }
grep -E '^(default|bounds) ' "$W/names" >"$W/facts"
while read -r kind key value; do
	case $kind in default) want="Default: $value" ;; *) want="Bounds: $value" ;; esac
	# The sentence must end there or go on with a word: "9000" is not in "90000".
	if paragraph "$key" | grep -qE "^$(printf '%s' "$want" | sed 's/[.]/\\./g')([.,; ]|$)"; then echo "ok dsprep.conf.5 $key: $want"; else
		echo "not ok dsprep.conf.5 $key says: $want"
		bad=1
	fi
done <"$W/facts"

sed -n 's/^check //p' "$W/names" >"$W/code"
items dsprep.8 CHECKS Sy >"$W/page"
same "dsprep.8 has every check" "$W/code" "$W/page"
sed -n 's/^op //p' "$W/names" >"$W/code"
items dsprep.8 OPERATIONS Cm >"$W/page"
same "dsprep.8 has every operation" "$W/code" "$W/page"

awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' "$W/help" >"$W/code"
items dsprep.8 Commands Ic >"$W/page"
same "dsprep.8 has every command" "$W/code" "$W/page"
grep -oE -- '--[a-z-]+' <(sed -n '/^options:/,$p' "$W/help") >"$W/code"
sed -n '/^\.Ss Options/,/^\.Sh/p' man/dsprep.8 | sed -n 's/^\.It //p' | grep -oE 'Fl -[a-z-]+' | sed 's/^Fl -/--/' >"$W/page"
same "dsprep.8 has every option" "$W/code" "$W/page"

# Exit 64 for anything else.
for args in "" "nosuch" "--nosuch plan" "plan --nosuch" "plan extra" "-z" "doctor extra" "explain" "explain nosuch" "plan --node 1" "plan --write-config" "plan --write-config --node 0" "-c" "apply extra" "undo x" "undo 1 2"; do
	"$B/dsprep" $args >/dev/null 2>"$W/err" </dev/null
	rc=$?
	if [ $rc = 64 ] && [ -s "$W/err" ]; then echo "ok usage error: dsprep $args"; else
		echo "not ok usage error: dsprep $args: exit status $rc"
		bad=1
	fi
done
for id in $(sed -n 's/^check //p' "$W/names"); do
	if "$B/dsprep" explain "$id" | grep -q "^source: ."; then echo "ok explain $id"; else echo "not ok explain $id"; bad=1; fi
	command -v python3 >/dev/null || { echo "skip explain $id in JSON: python3 is not installed"; continue; }
	if "$B/dsprep" -j explain "$id" | python3 -c 'import json, sys
d = json.load(sys.stdin)
assert d["format"] == 1 and d["id"] == sys.argv[1] and d["source"] and d["reads"]' "$id"; then echo "ok explain $id in JSON"; else echo "not ok explain $id in JSON"; bad=1; fi
done
exit $bad
