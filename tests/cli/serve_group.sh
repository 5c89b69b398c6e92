#!/bin/bash
# serve_group.sh: a served group of two ranks on loopback. A rank that is killed or stopped fails the requests
# in flight, is named by /health, and comes back without a restart of the other one; refusals name both sides.
# As root the ranks run as uid 65534; their identity is read from /proc.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
for t in curl python3; do command -v $t >/dev/null || { echo "$t is not installed"; exit 77; }; done
[ -x "$B/dsengine" ] || { echo "$B/dsengine is not built"; exit 1; }
W=$(mktemp -d) || exit 2
PID=("" "")
clean_up() {
	local p
	for p in "${PID[@]}"; do [ -n "$p" ] && kill -9 "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$W"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
bad=0
check() { # check WHAT CONDITION...: the rest is a command
	local what=$1
	shift
	if "$@"; then echo "ok serve group: $what"; else
		echo "not ok serve group: $what"
		tail -n 4 "$W"/log.* | sed 's/^/   /'
		bad=1
	fi
}
cp "$B/dsengine" "$W/dsengine" && cp -r tests/fixtures/demo-model "$W/model" || exit 2
user=()
if [ "$(id -u)" = 0 ]; then
	chmod -R a+rX "$W"
	user=(--user 65534)
fi
read -r HTTP P0 P1 < <(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')
"$W/dsengine" keygen "$W/secret" 2>/dev/null || exit 2
cat >"$W/conf" <<-X
	[engine]
	model = $W/model
	world = 2
	port = $HTTP
	rank.0 = 127.0.0.1:$P0
	rank.1 = 127.0.0.1:$P1
	host_report = $W/none
X
U=http://127.0.0.1:$HTTP
start() { # start RANK [OPTION...]
	local r=$1
	shift
	"$W/dsengine" serve -c "$W/conf" --rank "$r" --secret-file "$W/secret" "${user[@]}" "$@" 2>>"$W/log.$r" &
	PID[r]=$!
}
# field EXPRESSION: of /health, h being the object; "none" while nobody listens
field() { curl -s -m 2 $U/health | python3 -c 'import json, sys
t = sys.stdin.read()
h = json.loads(t) if t else {}
try: print(eval(sys.argv[1]))
except (KeyError, TypeError, IndexError): print("none")' "$1"; }
wait_for() { # wait_for EXPRESSION VALUE SECONDS
	local until=$(($(date +%s%N) + $3 * 1000000000))
	while [ "$(date +%s%N)" -lt "$until" ]; do
		[ "$(field "$1")" = "$2" ] && return 0
		sleep 0.05
	done
	return 1
}
body() { printf '{"messages":[{"role":"user","content":"Tell me a story about Ada the fox, with a red lamp near the river and Ben."}],"temperature":0,"max_tokens":%s,"stream":%s,"reasoning_effort":"none"}' "$1" "$2"; }
ask() { curl -s -m 30 -H 'Content-Type: application/json' -d "$(body "$1" "$2")" "${@:3}" $U/v1/chat/completions; }
content() { python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])'; }
is() { [ "$1" = "$2" ]; }
has() { case $1 in *"$2"*) true ;; *) false ;; esac; }
ended() { # ended RANK: exit status of a rank that should end; bounded
	local i
	for i in $(seq 100); do kill -0 "${PID[$1]}" 2>/dev/null || break; sleep 0.1; done
	[ "$i" = 100 ] && kill -9 "${PID[$1]}"
	wait "${PID[$1]}" 2>/dev/null
	local rc=$?
	PID[$1]=""
	return $rc
}
# A stream that takes rank 1 away itself, at its fortieth piece of text, while another request waits.
cat >"$W/broken.py" <<-'X'
	import http.client, json, os, sys, threading, time
	port, pid, sig, pieces = (int(a) for a in sys.argv[1:])
	def post(**more):
	    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
	    body = {"messages": [{"role": "user", "content": "Tell me a story about Ada the fox."}], **more}
	    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
	    return c.getresponse()
	status = []
	waiting = threading.Thread(target=lambda: status.append(post(max_tokens=5).status))
	# Hundreds of tokens: this seed's answer at this temperature.
	stream, n, lines, t0 = post(temperature=2, top_p=1, seed=4, max_tokens=3000, stream=True), 0, [], time.monotonic()
	for line in stream:
	    line = line.decode().strip()
	    if line:
	        lines.append(line)
	    n += '"content": "' in line or '"reasoning_content"' in line
	    if n == 2 and not waiting.ident:
	        waiting.start()
	    if n == pieces:
	        os.kill(pid, sig)
	        t0 = time.monotonic()
	        pieces = -1
	ms = (time.monotonic() - t0) * 1000
	waiting.join()
	ended = len(lines) > 1 and lines[-1] == "data: [DONE]" and lines[-2].startswith('data: {"error"')
	print("stream", "error+DONE" if ended else lines[-2:], "in time" if ms < 3000 else f"{ms:.0f} ms", "waiting", *status)
X
broken() { # broken WHAT SIGNAL
	check "rank 1 $1: stream and waiting request are told within 3 s" is \
		"$(python3 "$W/broken.py" $HTTP "${PID[1]}" "$2" 40 2>&1)" "stream error+DONE in time waiting 503"
}

# ---- forming
start 0
check "alone rank 0 says that rank 1 is missing" wait_for '"rank 1" in h["culprit"]["text"]' True 8
check "its state is loading" is "$(field 'h["status"]')" loading
check "requests are 503 with Retry-After meanwhile" has "$(ask 5 false -D - -o /dev/null)" "Retry-After: "
start 1
check "with rank 1 it is ready" wait_for 'h["status"]' ok 10
body 60 false >"$W/body"
"$W/dsengine" generate -m "$W/model" --messages "$W/body" -n 60 "${user[@]}" >"$W/alone" 2>/dev/null
ask 60 false | content >"$W/group"
check "the text equals that of one rank" cmp -s "$W/alone" "$W/group"
check "health names the path and its bytes" is "$(field 'h["ranks"][1]["paths"][0]["name"] == "rank" and h["ranks"][1]["paths"][0]["rx_bytes"] > 10000')" True
if [ "$(id -u)" = 0 ]; then
	for r in 0 1; do
		# Everything of one thread on one line; all threads must have the same.
		seen=$(cat /proc/"${PID[r]}"/task/*/status | awk '/^[UG]id:/ || /^Cap/ || /^NoNewPrivs:/ || /^Groups:/ { $1 = $1; print }' | sort -u | tr '\n' ' ')
		want="CapAmb: 0000000000000000 CapBnd: 0000000000000000 CapEff: 0000000000000000 CapInh: 0000000000000000 CapPrm: 0000000000000000 Gid: 65534 65534 65534 65534 Groups: NoNewPrivs: 1 Uid: 65534 65534 65534 65534 "
		check "every thread of rank $r has given up root: $(ls /proc/"${PID[r]}"/task | wc -l) threads" is "$seen" "$want"
	done
else
	echo "skip serve group: identity of every thread: needs root"
fi

# ---- rank 1 is killed
kill_rank() { kill -9 "${PID[$1]}"; wait "${PID[$1]}" 2>/dev/null; PID[$1]=""; }
disown "${PID[1]}" # the client kills it; bash need not report that
broken killed 9
PID[1]=""
check "health is failed and names rank, path and collective" is "$(field 'h["status"], h["culprit"]["rank"], h["culprit"]["path"], bool(h["culprit"]["collective"]), h["ranks"][1]["state"]')" "('failed', 1, 'rank', True, 'lost')"
check "new requests are 503 with Retry-After" has "$(ask 5 false -D - -o /dev/null)" "Retry-After: "
start 1
check "it comes back under a new epoch, rank 0 still the same process" eval 'wait_for "h[\"status\"], h[\"epoch\"]" "('"'ok'"', 2)" 10 && kill -0 ${PID[0]}'
ask 60 false | content >"$W/group"
check "and answers as before" cmp -s "$W/alone" "$W/group"

# ---- rank 1 hangs
broken stopped 19
kill -CONT "${PID[1]}"
check "it joins again by itself" wait_for 'h["status"]' ok 10
ask 60 false | content >"$W/group"
check "and answers as before, after a hang" cmp -s "$W/alone" "$W/group"

# ---- nobody asks anything
disown "${PID[1]}"
kill_rank 1
check "at once health is not ok any more, for no path is left" wait_for 'h["status"]' degraded 1
check "a rank that goes while nothing runs is noticed" wait_for 'h["status"]' failed 3
start 1
check "and comes back" wait_for 'h["status"]' ok 10

# ---- rank 0 is killed
kill_rank 0
sleep 0.3
start 0
check "rank 0 comes back to a waiting rank 1" eval 'wait_for "h[\"status\"]" ok 12 && kill -0 ${PID[1]}'

# ---- the end
kill -TERM "${PID[0]}"
check "SIGTERM ends rank 0 with exit 0" ended 0
kill -INT "${PID[1]}"
check "SIGINT ends rank 1, which waits for rank 0, with exit 0" ended 1

# ---- refusals
start 0
start 1 --numerics exact
ended 1
check "other numerics: rank 1 ends with exit 1" is $? 1
check "and names both sides" has "$(tail -n 3 "$W/log.1")" 'numerics is "exact" on rank 1 and "native" on rank 0'
[ -n "${PID[0]}" ] && kill "${PID[0]}" && ended 0
"$W/dsengine" keygen "$W/other" 2>/dev/null
start 0
start 1 --secret-file "$W/other"
ended 1
check "another secret: rank 1 ends with exit 1" is $? 1
check "and says so" has "$(tail -n 3 "$W/log.1")" "the shared secret differs"
check "rank 0 goes on waiting" is "$(field 'h["status"]')" loading
kill "${PID[0]}" && ended 0

refused() { # refused WHAT WORD STATUS OPTION...
	local what=$1 word=$2 want=$3 out rc
	shift 3
	out=$("$W/dsengine" serve -c "$W/conf" "${user[@]}" "$@" 2>&1 </dev/null)
	rc=$?
	check "$what" eval '[ $rc = $want ] && has "$out" "$word"'
}
head -c 31 /dev/zero >"$W/short" && chmod 600 "$W/short"
refused "a secret of 31 bytes is refused" "31 bytes; it must have 32" 1 --secret-file "$W/short"
cp "$W/other" "$W/open" && chmod 644 "$W/open"
refused "a secret that everybody may read is refused" "everybody may read it" 1 --secret-file "$W/open"
refused "a missing secret is refused" "No such file" 1 --secret-file "$W/absent"
printf '[engine]\nmodel = %s\nprot = 1\n' "$W/model" >"$W/typo"
refused "a wrong key is a usage error with file and line" "typo line 3" 64 -c "$W/typo"
refused "an unknown option is a usage error" "no such option" 64 --spawn 2
refused "an open address without keys is refused" "open to the network" 64 --host 0.0.0.0
exit $bad
