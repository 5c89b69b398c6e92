#!/bin/bash
# demo.sh: the main job on one machine, end to end. Two network namespaces stand for two nodes; each has
# two veth rails with a Spark's interface names, and a management link. dsprep prepares the rails, dsengine
# runs the demo model over both, a rail is cut and repaired under load, and dsprep puts everything back.
# Needs root, for the namespaces alone: nothing of this machine's own network, services, accounts or files
# outside one temporary folder is touched. Exit 1 on any miss; Ctrl-C leaves nothing behind.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build}
[ "$(id -u)" = 0 ] || { echo "demo: needs root to make network namespaces; try: sudo make demo" >&2; exit 77; }

MODEL=tests/fixtures/demo-model
. tests/nodes.sh
RUN=$(mktemp -d /tmp/dsdemo.XXXXXX) || exit 2
ENGINE_UID=${SUDO_UID:-65534}
[ "$ENGINE_UID" = 0 ] && ENGINE_UID=65534
PIDS=()
FAILED=0
START=$SECONDS

if [ -t 1 ]; then BOLD=$'\e[1m' GREEN=$'\e[32m' RED=$'\e[31m' DIM=$'\e[2m' OFF=$'\e[0m'; else BOLD="" GREEN="" RED="" DIM="" OFF=""; fi
head1() { printf '\n%s== %s%s\n' "$BOLD" "$*" "$OFF"; }
ok() { printf '   %sok%s   %s\n' "$GREEN" "$OFF" "$*"; }
miss() { printf '   %sMISS%s %s\n' "$RED" "$OFF" "$*"; FAILED=1; }
note() { printf '   %s%s%s\n' "$DIM" "$*" "$OFF"; }
check() { # check "what" COMMAND...
	local what=$1
	shift
	if "$@" >"$RUN/out" 2>&1; then ok "$what"; else miss "$what"; sed 's/^/        /' "$RUN/out" | tail -n 12; fi
}
elapsed() { printf '%s[%3d s]%s ' "$DIM" $((SECONDS - START)) "$OFF"; }

clean_up() {
	trap '' INT TERM HUP PIPE
	local p i
	for p in "${PIDS[@]:-}"; do [ -n "$p" ] && kill "$p" 2>/dev/null; done
	for i in $(seq 30); do
		for p in "${PIDS[@]:-}"; do [ -n "$p" ] && kill -0 "$p" 2>/dev/null && { sleep 0.1; continue 2; }; done
		break
	done
	for p in "${PIDS[@]:-}"; do [ -n "$p" ] && kill -9 "$p" 2>/dev/null; done
	nodes_stop
	rm -rf "$RUN"
}
trap clean_up EXIT
interrupted() { # nothing to standard output: its reader may be what went away, and the signal would come again
	trap '' INT TERM HUP PIPE
	printf '\ndemo: interrupted, removing what it made\n' >&2
	exit 130
}
trap interrupted INT TERM HUP PIPE

# ------------------------------------------------------------------ 1. two nodes
make_nodes() {
	nodes_start || exit 1
	local r i
	for r in $RAILS $MGMT; do link_new "$r" || exit 1; done
	in_a ip addr add 192.168.77.1/24 dev $MGMT && in_a ip link set $MGMT up
	in_b ip addr add 192.168.77.2/24 dev $MGMT && in_b ip link set $MGMT up
	in_a ip route add default via 192.168.77.2
	in_b ip route add default via 192.168.77.1
	# Cables are plugged: the rails are up, as the platform leaves them, but have no addresses.
	for r in $RAILS; do in_a ip link set "$r" up && in_b ip link set "$r" up; done
	for i in $(seq 50); do	# link-local addresses settle (duplicate detection takes a second or two)
		! in_a ip -6 addr show tentative | grep -q inet6 && ! in_b ip -6 addr show tentative | grep -q inet6 && break
		sleep 0.1
	done
}

# Everything of a node that dsprep may change, as the kernel says it.
kernel_state() { # kernel_state a|b
	"in_$1" ip -d -j addr show | python3 -c '
import json, sys
for l in json.load(sys.stdin):
    l.pop("ifindex", None)
    for a in l["addr_info"]:
        a.pop("valid_life_time", None); a.pop("preferred_life_time", None)
    print(l["ifname"], l["mtu"], sorted(set(l["flags"]) - {"LOWER_UP", "NO-CARRIER"}), l.get("inet6_addr_gen_mode"), sorted(json.dumps(a, sort_keys=True) for a in l["addr_info"]))'
	"in_$1" ip route show table all | sort
	"in_$1" ip -6 route show table all | sort
	local r k
	for r in $RAILS; do
		for k in ipv4/conf/$r/arp_ignore ipv4/conf/$r/arp_announce ipv4/conf/$r/rp_filter ipv4/conf/$r/arp_filter ipv6/conf/$r/addr_gen_mode ipv6/conf/$r/accept_ra; do
			printf '%s=%s\n' "$k" "$("in_$1" cat "/proc/sys/net/$k" 2>&1)"
		done
	done
}

dsprep_on() { # dsprep_on a|b ARGUMENTS...
	local node=$1
	shift
	"in_$node" "$B/dsprep" -c "$RUN/$node/dsprep.conf" --root "$RUN/$node/root" "$@"
}

# ------------------------------------------------------------------ 3. engine
start_engine() { # start_engine RANK
	local node=a pid=$NODE_A
	[ "$1" = 1 ] && node=b pid=$NODE_B
	nsenter -t "$pid" -n "$RUN/dsengine" serve -c "$RUN/$node/dsengine.conf" --secret-file "$RUN/$node/secret" --user "$ENGINE_UID" >"$RUN/rank$1.log" 2>&1 &
	PIDS+=($!)
}
health() { in_a curl -s -m 2 http://127.0.0.1:8000/health; }
status() { health | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"])' 2>/dev/null; }
wait_status() { # wait_status WANTED SECONDS
	local until=$(($(date +%s%N) + $2 * 1000000000))
	while [ "$(date +%s%N)" -lt "$until" ]; do
		[ "$(status)" = "$1" ] && return 0
		sleep 0.05
	done
	return 1
}
body() { # body TEXT MAX [STREAM]
	python3 -c 'import json,sys; print(json.dumps({"messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": int(sys.argv[2]), "temperature": 0, "stream": sys.argv[3] == "1", "reasoning_effort": "none"}))' "$1" "$2" "${3:-1}"
}
ask() { # ask TEXT MAX SSE_ARGUMENTS...: streams the answer to the terminal
	local text=$1 max=$2
	shift 2
	body "$text" "$max" >"$RUN/body.json"
	tests/sse.py --text "$RUN/text" --json "$RUN/times" "$@" -- nsenter -t "$NODE_A" -n \
		curl -sN -m 60 -H 'Content-Type: application/json' --data-binary @"$RUN/body.json" http://127.0.0.1:8000/v1/chat/completions
}
times() { python3 -c 'import json,sys; v=json.load(open(sys.argv[1])).get(sys.argv[2]); print("none" if v is None else "%.3g" % v if isinstance(v, float) else v)' "$RUN/times" "$1"; }

head1 "1. two nodes as network namespaces, two rails each, and a management link"
make_nodes
for n in a b; do
	mkdir -p "$RUN/$n/root/etc" "$RUN/$n/root/run" "$RUN/$n/root/var/lib"
	printf '[cluster]\nshape = pair\nnodes = 2\nnode = %d\ncage = auto\nsubnets = 10.200.0.0/16\nmtu = 9000\nmanagement = %s\n\n[apply]\nsettle_s = 1\n' $([ $n = a ] && echo 1 || echo 2) $MGMT >"$RUN/$n/dsprep.conf"
done
kernel_state a >"$RUN/a/before"
kernel_state b >"$RUN/b/before"
in_a ip -br addr show | sed 's/^/   a: /'
in_b ip -br addr show | sed 's/^/   b: /'

head1 "2. dsprep prepares the rails"
for n in a b; do
	note "node $n: dsprep plan"
	dsprep_on $n plan | sed 's/^/   /'
	[ "${PIPESTATUS[0]}" = 3 ] || miss "plan on node $n says that changes are pending (exit 3)"
	note "node $n: dsprep apply --yes"
	if dsprep_on $n apply --yes >"$RUN/out" 2>&1; then ok "apply on node $n"; else miss "apply on node $n"; fi
	sed 's/^/   /' "$RUN/out"
done
for n in a b; do
	again=$(dsprep_on $n apply --yes 2>&1) && printf '%s' "$again" | grep -qi 'nothing to do' && ok "a second apply on node $n does nothing" || miss "a second apply on node $n does nothing: $again"
	check "plan on node $n is empty now" dsprep_on $n plan
	note "node $n: dsprep doctor"
	dsprep_on $n doctor >"$RUN/doctor" 2>"$RUN/doctor.err"
	rc=$?
	sed 's/^/   /' "$RUN/doctor"
	# 1 is warnings, 3 is something undetermined (said with its reason); 2 is an error or worse.
	[ $rc != 2 ] && [ $rc -le 3 ] && ok "doctor on node $n finds no error (exit $rc)" || { miss "doctor on node $n (exit $rc)"; sed 's/^/   /' "$RUN/doctor.err"; }
done
for i in 0 1; do check "node a reaches node b over rail $i with 9000 bytes unfragmented" in_a ping -q -c 1 -W 2 -M do -s 8972 10.200.$i.2; done

head1 "3. dsengine: two ranks, one on each node, as uid $ENGINE_UID"
elapsed; echo "copying binary, model and config to the run folder"
cp "$B/dsengine" "$RUN/dsengine" && cp -r "$MODEL" "$RUN/model" && chmod -R a+rX "$RUN" || exit 1
head -c 32 /dev/urandom >"$RUN/secret"
for n in a b; do
	cp "$RUN/secret" "$RUN/$n/secret"
	chmod 0600 "$RUN/$n/secret"
	cat >"$RUN/$n/dsengine.conf" <<-X
		[engine]
		model = $RUN/model
		world = 2
		rank = $([ $n = a ] && echo 0 || echo 1)
		secret_file = $RUN/$n/secret
		host_report = $RUN/$n/root/run/dsprep/host.json
		rank.0 = 10.200.0.1:8700
		rank.1 = 10.200.0.2:8701
	X
done
start_engine 1
start_engine 0
if wait_status ok 20; then ok "health is ok"; else
	miss "health is ok within 20 s"
	for i in 0 1; do sed "s/^/   rank $i: /" "$RUN/rank$i.log" | tail -n 20; done
	exit 1
fi
for i in 0 1; do
	uid=$(awk '/^Uid:/{print $2 $3 $4 $5}' "/proc/${PIDS[$((1 - i))]}/status")
	[ "$uid" = "$ENGINE_UID$ENGINE_UID$ENGINE_UID$ENGINE_UID" ] && ok "rank $i runs as uid $ENGINE_UID, capabilities $(awk '/^CapEff:/{print $2}' "/proc/${PIDS[$((1 - i))]}/status")" || miss "rank $i runs as uid $ENGINE_UID: $uid"
done

head1 "4. questions"
b0=$(tx_bytes in_a enp1s0f0np0) b1=$(tx_bytes in_a enP2p1s0f0np0)
for q in "What is a rail?" "Count from 3 to 17." "Tell me a story about Ada the fox, with a red lamp near the river and Ben."; do
	printf '\n   %s> %s%s\n   ' "$BOLD" "$q" "$OFF"
	if ask "$q" 200; then note "$(times tokens) tokens, first after $(times first_s) s, $(times tokens_per_s) tokens/s"; else miss "the answer to \"$q\" ended in order"; fi
done
echo
nsenter -t "$NODE_A" -n tests/tool_call.py 8000 >"$RUN/out" 2>&1 && ok "a tool was called, and the answer holds its result" || miss "a tool was called, and the answer holds its result"
sed 's/^/ /' "$RUN/out"
health | python3 -m json.tool | sed 's/^/   /'
d0=$(($(tx_bytes in_a enp1s0f0np0) - b0)) d1=$(($(tx_bytes in_a enP2p1s0f0np0) - b1))
[ $((d0 * 4)) -ge $((d0 + d1)) ] && [ $((d1 * 4)) -ge $((d0 + d1)) ] && ok "each rail carried at least a quarter: $d0 and $d1 bytes from node a" || miss "each rail carried at least a quarter: $d0 and $d1 bytes from node a"

head1 "5. rail 0 is cut in the middle of an answer"
story="Tell me a story about Ada the fox, with a red lamp near the river and Ben."
body "$story" 200 >"$RUN/world1.json"
"$RUN/dsengine" generate -m "$RUN/model" --messages "$RUN/world1.json" -n 200 --temperature 0 --user "$ENGINE_UID" >"$RUN/world1" 2>"$RUN/out" || { miss "the same question at world 1"; cat "$RUN/out"; }
printf '   '
if ask "$story" 200 --after 10 --run "nsenter -t $NODE_B -n ip link set enp1s0f0np0 down"; then ok "the answer ended in order"; else miss "the answer ended in order"; fi
pause=$(times pause_after_run_s)
[ "$(times tokens_after_run)" -ge 1 ] 2>/dev/null && python3 -c "import sys; sys.exit(not float('$pause') < 2)" && ok "the longest pause after the cut was $pause s, $(times tokens_after_run) tokens came after it" || miss "the next token within 2 s of the cut: $pause s"
[ -s "$RUN/text" ] && [ "$(tr -d '\n' <"$RUN/text")" = "$(tr -d '\n' <"$RUN/world1")" ] && ok "the text equals that of world 1 without a cut" || { miss "the text equals that of world 1 without a cut"; sed 's/^/        /' "$RUN/world1"; }
wait_status degraded 2 && ok "health says degraded" || miss "health says degraded: $(health)"
health | python3 -c '
import json, sys
p = {p["name"]: p for r in json.load(sys.stdin)["ranks"] for p in r["paths"]}
sent = sum(q["resent"] for q in p.values())
print("rail 0 went down (%d), chunks that it held were sent again on rail 1 (%d)" % (p["rail0"]["downs"], sent))
sys.exit(p["rail0"]["downs"] < 1 or sent < 1)' >"$RUN/out" && ok "$(cat "$RUN/out")" || miss "rank 0 lost and repeated something: $(cat "$RUN/out")"
in_b ip link set enp1s0f0np0 up
t0=$(date +%s%N)
if wait_status ok 5; then ok "repaired: health is ok after $((($(date +%s%N) - t0) / 1000000)) ms"; else miss "health is ok within 5 s of the repair: $(health)"; fi
b0=$(tx_bytes in_a enp1s0f0np0)
ask "What is a rail?" 60 --quiet || miss "an answer after the repair"
d0=$(($(tx_bytes in_a enp1s0f0np0) - b0))
[ $d0 -gt 20000 ] && ok "rail 0 carries again: $d0 bytes for one answer" || miss "rail 0 carries again: $d0 bytes"

head1 "6. back to how it was"
for p in "${PIDS[@]}"; do kill -TERM "$p"; done
for p in "${PIDS[@]}"; do
	wait "$p"
	rc=$?
	[ $rc = 0 ] && ok "engine process $p stopped in order" || miss "engine process $p stopped in order (status $rc)"
done
PIDS=()
for n in a b; do
	check "dsprep undo on node $n" dsprep_on $n undo
	kernel_state $n >"$RUN/$n/after"
	if diff "$RUN/$n/before" "$RUN/$n/after" >"$RUN/diff"; then ok "node $n: kernel state equals the one before"; else miss "node $n: kernel state equals the one before"; sed 's/^/        /' "$RUN/diff"; fi
done
echo
if [ $FAILED = 0 ]; then printf '%sdemo passed%s in %d s\n' "$GREEN" "$OFF" $((SECONDS - START)); else printf '%sdemo failed%s, see MISS above\n' "$RED" "$OFF"; fi
exit $FAILED
