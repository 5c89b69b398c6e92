#!/bin/bash
# tp-paths.sh [CUTS]: two ranks in two network namespaces with two rails each; rails are cut from outside
# at random instants, in each direction, and repaired. Judged: both rails carry before each cut, both
# ranks notice within 2 s, work goes on and every byte stays right, the rail is ok within 5 s after the
# repair and carries again, chunks were sent again. Real kernel, real links. Needs root.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build} CUTS=${1:-20}
[ "$(id -u)" = 0 ] || { echo "needs root, for network namespaces"; exit 77; }
unshare --net true 2>/dev/null || { echo "this machine makes no network namespace"; exit 77; }

W=$(mktemp -d) || exit 2
NS=() RANK=()
cleanup() {
	for p in "${RANK[@]:-}" "${NS[@]:-}"; do [ -n "$p" ] && kill -9 "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$W"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
chmod 755 "$W"
cp "$B/tests/tools/tp_rank" "$W/tp_rank" || exit 2
IF=(enp1s0f0np0 enP2p1s0f0np0)
bad=0
ok() { echo "ok $1"; }
no() { echo "not ok $1"; bad=1; }
in_ns() { local n=$1; shift; nsenter -t "${NS[$n]}" -n "$@"; }

for n in 0 1; do
	unshare --net sleep 600 &
	NS[n]=$!
done
own=$(readlink /proc/self/ns/net)
for n in 0 1; do
	for _ in $(seq 200); do [ "$(readlink "/proc/${NS[$n]}/ns/net")" != "$own" ] && break; sleep 0.01; done
	[ "$(readlink "/proc/${NS[$n]}/ns/net")" != "$own" ] || { echo "not ok namespaces"; exit 1; }
	in_ns $n ip link set lo up
done
for r in 0 1; do
	in_ns 0 ip link add ${IF[$r]} type veth peer name ${IF[$r]} netns "${NS[1]}" || exit 2
	for n in 0 1; do
		in_ns $n ip link set ${IF[$r]} mtu 9000 up
		in_ns $n ip addr add 10.200.$r.$((n + 1))/24 dev ${IF[$r]}
	done
done
if ! in_ns 0 nft add table netdev probe 2>/dev/null; then
	echo "skip lab/tp-paths: the kernel has no nft netdev tables"
	exit 0
fi
in_ns 0 nft delete table netdev probe

for n in 0 1; do
	rail() { echo "{\"rail\":$1,\"cage\":0,\"edge\":\"1-2\",\"netdev\":\"${IF[$1]}\",\"ibdev\":null,\"ipv4\":\"10.200.$1.$((n + 1))/24\",\"mtu\":9000,\"identified_by\":\"name\",\"peers\":[{\"node\":$((2 - n)),\"ipv4\":\"10.200.$1.$((2 - n))\"}]}"; }
	echo "{\"format\":1,\"generation\":1,\"node\":$((n + 1)),\"nodes\":2,\"shape\":\"pair\",\"rails\":[$(rail 0),$(rail 1)]}" >"$W/host$n.json"
done
start_ranks() {
	for n in 0 1; do
		# Unprivileged, as the engine is. No shell in between: signals are for the rank itself.
		nsenter -t "${NS[$n]}" -n setpriv --reuid 65534 --regid 65534 --clear-groups \
			--inh-caps=-all --bounding-set=-all "$W/tp_rank" $n "$W/host$n.json" \
			10.200.0.1 10.200.0.2 >"$W/$n.log" 2>"$W/$n.err" &
		RANK[n]=$!
	done
}

now() { local up; read -r up _ </proc/uptime; up=${up/./}; echo $((10#$up * 10)); }
# field NODE RAIL WHAT of the newest line: state tx rx resent downs
field() {
	local -a f
	read -r -a f < <(tail -n 1 "$W/$1.log")
	case $3 in
	ops) echo "${f[1]:-0}" ;;
	gap) echo "${f[2]:-0}" ;;
	state) echo "${f[4 + 6 * $2]:-none}" ;;
	tx) echo "${f[5 + 6 * $2]:-0}" ;;
	rx) echo "${f[6 + 6 * $2]:-0}" ;;
	resent) echo "${f[7 + 6 * $2]:-0}" ;;
	esac
}
# await RAIL STATE LIMIT_MS: both ranks see it; prints the time taken
await() {
	local t0 t
	t0=$(now)
	while :; do
		t=$(($(now) - t0))
		[ "$(field 0 "$1" state)" = "$2" ] && [ "$(field 1 "$1" state)" = "$2" ] && { echo $t; return 0; }
		[ $t -gt "$3" ] && { echo $t; return 1; }
		sleep 0.02
	done
}
moves() { # NODE RAIL WHAT LIMIT_MS: the counter grows
	local v t0
	v=$(field "$1" "$2" "$3") t0=$(now)
	while [ $(($(now) - t0)) -lt "$4" ]; do
		[ "$(field "$1" "$2" "$3")" -gt "$v" ] && return 0
		sleep 0.02
	done
	return 1
}
cut_link() { in_ns "$1" ip link set "${IF[$2]}" down; }
mend_link() { in_ns "$1" ip link set "${IF[$2]}" up; }
# Frames that node $1 should receive on rail $2 vanish; carrier and the other direction stay.
cut_silent() { in_ns "$1" nft "add table netdev cut; add chain netdev cut in { type filter hook ingress device ${IF[$2]} priority 0; policy drop; }"; }
mend_silent() { in_ns "$1" nft delete table netdev cut; }

start_ranks
t=$(await 0 ok 8000) && await 1 ok 2000 >/dev/null || { no "two ranks form a group over two rails"; cat "$W"/*.err; exit 1; }
ok "two ranks form a group over two rails ($t ms)"
worst_notice=0 worst_back=0
for i in $(seq "$CUTS"); do
	kind=$((i % 2)) node=$((i / 2 % 2)) rail=$((RANDOM % 2))
	[ $kind = 0 ] && how=link || how=silent
	name="cut $i: $how at node $node, rail $rail"
	a0=$(field 0 0 tx) a1=$(field 0 1 tx) b0=$(field 1 0 tx) b1=$(field 1 1 tx)
	sleep 0.$((200 + RANDOM % 500))
	a0=$(($(field 0 0 tx) - a0)) a1=$(($(field 0 1 tx) - a1))
	b0=$(($(field 1 0 tx) - b0)) b1=$(($(field 1 1 tx) - b1))
	cut_$how $node $rail
	notice=$(await $rail down 4000)
	[ "$notice" -gt $worst_notice ] && worst_notice=$notice
	moves 0 0 ops 1000 && moves 1 0 ops 1000 && going=1 || going=0
	mend_$how $node $rail
	back=$(await $rail ok 8000)
	[ "$back" -gt $worst_back ] && worst_back=$back
	moves 0 $rail tx 1000 && moves 1 $rail tx 1000 && carries=1 || carries=0
	echo "   $name: bytes before $a0+$a1 and $b0+$b1, noticed $notice ms, ok again $back ms"
	if [ $((4 * a0)) -ge $((a0 + a1)) ] && [ $((4 * a1)) -ge $((a0 + a1)) ] && [ "$a0" -gt 0 ] &&
		[ $((4 * b0)) -ge $((b0 + b1)) ] && [ $((4 * b1)) -ge $((b0 + b1)) ] && [ "$b0" -gt 0 ] &&
		[ "$notice" -le 2000 ] && [ $going = 1 ] && [ "$back" -le 5000 ] && [ $carries = 1 ]; then
		ok "$name"
	else
		no "$name: going=$going carries=$carries"
		tail -n 1 "$W/0.log" "$W/1.log"
		cat "$W"/*.err
	fi
done
resent=$(($(field 0 0 resent) + $(field 0 1 resent) + $(field 1 0 resent) + $(field 1 1 resent)))
gap=$(field 0 0 gap)
[ "$resent" -gt 0 ] && ok "unacknowledged chunks were sent again ($resent)" || no "no chunk was sent again"
[ "$gap" -le 2000 ] && ok "no exchange waited longer than 2 s ($gap ms)" || no "an exchange waited $gap ms"
kill -TERM "${RANK[0]}"
wait "${RANK[0]}"
r0=$?
wait "${RANK[1]}"
r1=$?
[ $r0$r1 = 00 ] && ok "every byte of $(field 0 0 ops) exchanges was right on both ranks" || { no "ranks ended with $r0 and $r1"; cat "$W"/*.err; }
# A rail that is missing at the start is waited for only a moment, and joins later.
cut_link 1 1
start_ranks
t=$(await 0 ok 5000) && moves 0 0 ops 1000 && ok "with rail 1 down a group forms on rail 0 ($t ms)" ||
	no "with rail 1 down no group forms in $t ms: $(cat "$W"/*.err)"
mend_link 1 1
t=$(await 1 ok 8000)
[ "$t" -le 5000 ] && moves 0 1 tx 1000 && moves 1 1 tx 1000 && ok "rail 1 joins when it comes up ($t ms)" ||
	no "rail 1 does not join in $t ms"
# Both rails: now the rank is lost, on both sides, by name.
in_ns 1 nft "add table netdev cut; add chain netdev cut in { type filter hook ingress devices = { ${IF[0]}, ${IF[1]} } priority 0; policy drop; }"
t0=$(now)
wait "${RANK[0]}"
r0=$? t=$(($(now) - t0))
wait "${RANK[1]}"
r1=$?
mend_silent 1
if [ $r0$r1 = 11 ] && [ $t -le 2000 ] && grep -q 'on rank 1: no frame for' "$W/0.err" && grep -q 'on rank 0: no frame for' "$W/1.err"; then
	ok "with both rails cut each rank names the other as lost ($t ms)"
else
	no "with both rails cut: $r0 and $r1 after $t ms: $(cat "$W"/*.err)"
fi
echo "   worst: noticed after $worst_notice ms, ok again $worst_back ms after the repair"
exit $bad
