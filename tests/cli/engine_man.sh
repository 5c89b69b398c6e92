#!/bin/bash
# engine_man.sh: dsengine's man pages, its help and its table of settings name the same things.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
bad=0
"$B/tests/tools/eng_names" >"$W/names" || exit 2

same() { # same NAME FILE1 FILE2: equal sets
	sort -u "$2" >"$W/a"
	sort -u "$3" >"$W/b"
	if [ -s "$W/a" ] && diff "$W/a" "$W/b" >"$W/diff"; then echo "ok $1"; else
		echo "not ok $1 (< code, > page)"
		sed 's/^/   /' "$W/diff"
		bad=1
	fi
}
# section NAME: the part of dsengine.8 below that heading
section() { awk -v want="$1" '/^\.S[hs]/ { name = $0; sub(/^\.S[hs] /, "", name) } name == want' man/dsengine.8; }

sed -n 's/^key //p' "$W/names" | sed 's/\.\*$/.N/' >"$W/code"
sed -n '/^\.Ss Keys/,/^\.Sh/s/^\.It Ic //p' man/dsengine.conf.5 >"$W/page"
same "dsengine.conf.5 has every setting" "$W/code" "$W/page"
paragraph() { awk -v key="$1" '$1 == ".It" { on = $3 == key } /^\.S[hs]/ { on = 0 } on' man/dsengine.conf.5 | tr '\n' ' '; }
while read -r kind key low high; do
	# A default is said after "Default:" or is the word marked "(default)".
	case $kind in
	default) want="Default: (\.Pa )?$low([.,; ]|$)|Cm $low \.Pq default" ;;
	bounds) want="[, ]$low to ($high([.,; ]|$)|\.Ic world \\\\\(mi 1)|, 1 or $high" ;;
	*) continue ;;
	esac
	if paragraph "$key" | grep -qE -- "$want"; then echo "ok dsengine.conf.5 $key: $kind $low $high"; else
		echo "not ok dsengine.conf.5 $key: $kind $low $high"
		bad=1
	fi
done <"$W/names"

"$B/dsengine" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' >"$W/code"
section SYNOPSIS | sed -n 's/^\.Ic \([a-z]*\).*/\1/p' >"$W/page"
same "dsengine.8 has every command" "$W/code" "$W/page"
for c in serve generate; do
	# Names that other servers use are in the page only: "Also" introduces them.
	"$B/dsengine" $c --help | grep -oE '^  -[a-z-]+' | tr -d ' ' | grep -vx -- --help >"$W/code"
	section "${c^}" | grep '^\.It ' | grep -oE 'Fl [a-z-]+' | sed 's/^Fl /-/' >"$W/page"
	same "dsengine.8 has every option of $c" "$W/code" "$W/page"
done
for o in $(section Serve | grep '^\.Fl -[a-z-]* *\.*$' | grep -oE -- '-[a-z-]+'); do
	if "$B/dsengine" serve "-$o" 2>&1 | grep -q "needs a value"; then echo "ok serve takes -$o"; else
		echo "not ok serve takes -$o"
		bad=1
	fi
done
exit $bad
