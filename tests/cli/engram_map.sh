#!/bin/bash
# engram_map.sh: dsengine-engram-map makes the demo model's token map, byte for byte, and refuses what it should.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
demo=tests/fixtures/demo-model bad=0
say() { # NAME: by the status of the last command
	if [ $? = 0 ]; then echo "ok engram map: $1"; else echo "not ok engram map: $1"; sed 's/^/   /' "$dir/said"; bad=1; fi
}
make_map() { python3 engine/engram_map.py "$@" >"$dir/said" 2>&1; }

cp "$demo/tokenizer.json" "$dir/" && make_map "$dir/tokenizer.json" && cmp "$dir/engram_token_map.bin" "$demo/engram_token_map.bin" >>"$dir/said" 2>&1
say "the demo model's map, beside its tokenizer"
rm -f "$dir/engram_token_map.bin"
! make_map "$dir/none.json" && grep -q "read $dir/none.json: .*No such file" "$dir/said"
say "a missing tokenizer is named"
printf '{"model": {"vocab": {"a": 0, "b": 2}}}' >"$dir/hole.json"
! make_map "$dir/hole.json" "$dir/out" && grep -q "no token has id 1" "$dir/said" && [ ! -e "$dir/out" ]
say "a hole in the ids is named"
python3 -c 'import json; json.dump({"model": {"vocab": {str(i): i for i in range(129280)}}}, open("'"$dir"'/wrong.json", "w"))'
! make_map "$dir/wrong.json" "$dir/out" && grep -q "the release has 99092" "$dir/said" && [ ! -e "$dir/out" ]
say "a vocabulary of the release's size that is another is refused"
! make_map "$dir/tokenizer.json" "$dir/no/where" && grep -q "write $dir/no/where: " "$dir/said"
say "a place that cannot be written is named"
! make_map && grep -q "^usage: " "$dir/said"
say "without arguments it says how to call it"
cp -r "$demo" "$dir/model" && rm "$dir/model/engram_token_map.bin"
"$B/dsengine" generate -m "$dir/model" --prompt-ids 0 >"$dir/said" 2>&1
command=$(sed -n 's/.*make it: dsengine-engram-map //p' "$dir/said")
[ -n "$command" ] && make_map "$command" && "$B/dsengine" generate -m "$dir/model" --prompt-ids 0 -n 1 >"$dir/said" 2>&1
say "the engine names the command, and the command cures it"
exit $bad
