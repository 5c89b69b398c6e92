#!/bin/bash
# apply.sh: dsprep apply and undo, the real program in network namespaces made here, netlink real, files
# below a temporary root. Prints "ok ...", "not ok ..." lines. Needs root; exit 77 otherwise.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
D=$PWD/$B/dsprep
[ "$(id -u)" = 0 ] || { echo "needs root to make network namespaces"; exit 77; }
unshare --net true 2>/dev/null || { echo "the kernel makes no network namespaces here"; exit 77; }
[ -x "$D" ] || { echo "not built: $D" >&2; exit 2; }

A="" P=""	# pids that hold the namespaces of the node and of its peer
W=$(mktemp -d /tmp/dsapply.XXXXXX) || exit 2
R=$W/root
R0=enp1s0f0np0 R1=enP2p1s0f0np0 M=enP7s7
bad=0
pids=()
clean_up() {
	trap '' INT TERM HUP
	for p in "${pids[@]:-}"; do [ -n "$p" ] && kill -9 "$p" 2>/dev/null; done
	for p in $A $P; do kill -9 "$p" 2>/dev/null; done
	rm -rf "$W"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

ok() { echo "ok $*"; }
no() {
	echo "not ok $*"
	sed 's/^/   /' "$W/out" | tail -n 8
	bad=1
	make_node	# the next test starts from a whole node
	fresh
	state >"$W/before"
}
t() { # t TEXT COMMAND...: one test line
	local text=$1
	shift
	if "$@"; then ok "$text"; else no "$text"; fi
}
# A namespace lives as long as a sleeping process, which ends with this script, and has no name: nothing is
# mounted, a chroot will do.
ns_new() { # sets ns
	local own
	own=$(readlink /proc/self/ns/net)
	setpriv --pdeathsig KILL unshare --net sleep 3600 </dev/null >/dev/null 2>&1 &
	ns=$!
	disown $ns
	for _ in $(seq 200); do
		case $(readlink /proc/$ns/ns/net) in "" | "$own") sleep 0.02 ;; *) return 0 ;; esac
	done
	return 1
}
a() { nsenter -t "$A" -n "$@"; }
aip() { a ip "$@"; }
pip() { nsenter -t "$P" -n ip "$@"; }
dsprep() { a "$D" -c "$W/conf" --root "$R" "$@" </dev/null >"$W/out" 2>&1; }
# rc WANTED ARGUMENTS...: dsprep exits so
rc() {
	local want=$1 got
	shift
	dsprep "$@"
	got=$?
	[ $got = "$want" ] && return 0
	echo "exit $got, wanted $want" >>"$W/out"
	return 1
}
watching() { # the apply whose output is FILE has done its steps
	for _ in $(seq 600); do
		grep -q watching "$1" && return 0
		sleep 0.05
	done
	return 1
}
says() { grep -qE -- "$1" "$W/out"; }

make_node() {
	local p i
	for p in $A $P; do kill -9 "$p" 2>/dev/null; done
	ns_new || exit 2
	A=$ns
	ns_new || exit 2
	P=$ns
	aip link set lo up
	for i in $R0 $R1 $M; do
		aip link add $i type veth peer name $i netns $P
		# Without duplicate address detection a state is settled at once; one test has it.
		[ "${1:-}" = dad ] || a sysctl -qw net.ipv6.conf.$i.accept_dad=0 net.ipv6.conf.$i.dad_transmits=0
		pip link set $i up
		aip link set $i up
	done
	aip addr add 192.0.2.1/24 dev $M
	aip route add default via 192.0.2.2
	settled || echo "the interfaces do not settle" >&2
}
settled() { # links that are up are ready, with their link-local address; both come a moment after the command
	local i n
	for _ in $(seq 80); do
		n=0
		for i in $R0 $R1 $M; do
			aip -o link show $i up | grep -q . || { n=$((n + 1)); continue; }
			[ "$(a cat /proc/sys/net/ipv6/conf/$i/addr_gen_mode)" = 1 ] ||
				aip -6 -o addr show dev $i scope link -tentative | grep -q fe80 || continue
			aip -6 route show table local dev $i | grep -q ff00 && n=$((n + 1))
		done
		[ $n = 3 ] && return 0
		sleep 0.1
	done
	return 1
}
state() {
	aip -j -d link show | sed 's/"qdisc":"[a-z]*",//g'
	aip -j addr show
	aip route show table all | sort	# a set: the order is that of coming
	aip -6 route show table all | sort
	a sh -c 'grep -r . /proc/sys/net/ipv4/conf/en* /proc/sys/net/ipv6/conf/en*' 2>/dev/null | grep -v stable_secret | sort
}
back() { state >"$W/now"; cmp -s "$W/before" "$W/now" || { diff "$W/before" "$W/now" | cut -c1-600 >>"$W/out"; return 1; }; }
tree() { (cd "$R" && find . -printf '%p %i %T@ %C@ %m %s\n' | sort); }
write_conf() { printf '[cluster]\nshape = pair\nnodes = 2\nnode = %s\nmanagement = %s\n[apply]\nsettle_s = %s\n' "${2:-1}" $M "$1" >"$W/conf"; }
fresh() { # nothing applied, nothing recorded
	rm -rf "$R"
	mkdir "$R"
	write_conf 1
}

make_node dad
fresh
state >"$W/before"

# ------------------------------------------------------------------ who may, and how
not_root() {
	setpriv --reuid 65534 --regid 65534 --clear-groups "$D" -c "$W/conf" --root "$R" "$@" </dev/null >"$W/out" 2>&1
	[ $? = 77 ] && says 'root'
}
chmod 755 "$W"
t "apply without root: 77, named" not_root apply --yes
t "undo without root: 77, named" not_root undo
no_cap() {
	a setpriv --bounding-set -net_admin --inh-caps -net_admin "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1
	[ $? = 77 ] && says 'CAP_NET_ADMIN'
}
t "apply as root without CAP_NET_ADMIN: 77, named" no_cap
t "apply without --yes and without a terminal: 64" rc 64 apply
t "  and nothing was done" test -z "$(ls -A "$R")"
t "unknown option: 64" rc 64 apply --force
t "apply -n only plans: 3" rc 3 apply -n --yes
t "  and wrote nothing" test -z "$(ls -A "$R")"
plan_without_caps() {
	a "$D" -c "$W/conf" --root "$R" plan >"$W/plan1" 2>&1
	a setpriv --bounding-set -all --inh-caps -all "$D" -c "$W/conf" --root "$R" plan >"$W/out" 2>&1
	cmp -s "$W/plan1" "$W/out"
}
t "plan says the same with no capability at all" plan_without_caps
t "undo with nothing to undo: 0" rc 0 undo
t "undo of an unknown number: 64" rc 64 undo 7
t "undo of no number: 64" rc 64 undo seven

# ------------------------------------------------------------------ apply, again, undo
t "apply: 0" rc 0 apply --yes
t "  plan is empty afterwards" rc 0 plan
report() { python3 - "$R/run/dsprep/host.json" <<'PY'
import json, os, stat, sys
r = json.load(open(sys.argv[1]))
assert r["format"] == 1 and r["node"] == 1 and r["nodes"] == 2 and r["shape"] == "pair", r
assert r["boot_id"] == open("/proc/sys/kernel/random/boot_id").read().strip()
assert [(x["rail"], x["netdev"], x["ipv4"], x["mtu"], x["identified_by"], x["edge"]) for x in r["rails"]] == [
    (0, "enp1s0f0np0", "10.200.0.1/24", 9000, "name", "1-2"), (1, "enP2p1s0f0np0", "10.200.1.1/24", 9000, "name", "1-2")], r
assert all(x["gid"] is None and x["gid_index"] is None for x in r["rails"])
assert r["rails"][1]["peers"] == [{"node": 2, "ipv4": "10.200.1.2"}]
assert stat.S_IMODE(os.stat(sys.argv[1]).st_mode) == 0o644
assert stat.S_IMODE(os.stat(os.path.dirname(sys.argv[1])).st_mode) == 0o755
PY
}
t "  host.json says what there is, 0644" report
modes() { [ "$(stat -c %a "$R/var/lib/dsprep")$(stat -c %a "$R/var/lib/dsprep/journal/1")$(stat -c %a "$R/var/lib/dsprep/journal/1/log")" = 700700600 ]; }
t "  the journal is for root alone" modes
quiet_second() {
	local mon before after
	tree >"$W/tree1"
	nsenter -t $A -n ip monitor all >"$W/monitor" 2>&1 &
	mon=$!
	pids+=($mon)
	sleep 0.5
	rc 0 apply --yes && says 'nothing to do' || { kill $mon; return 1; }
	sleep 0.3
	before=$(wc -c <"$W/monitor")
	aip link set $M alias seen	# proves that the monitor sees
	sleep 0.3
	after=$(wc -c <"$W/monitor")
	aip link set $M alias ""
	kill $mon
	wait $mon 2>/dev/null
	tree >"$W/tree2"
	cat "$W/monitor" >>"$W/out"
	[ "$before" = 0 ] && [ "$after" -gt 0 ] && cmp -s "$W/tree1" "$W/tree2"
}
t "second apply: no netlink event, no inode, no mtime changes" quiet_second
t "undo: 0" rc 0 undo
t "  kernel state is as before" back
t "  host.json went with it" test ! -e "$R/run/dsprep/host.json"
t "undo again: nothing, 0" rc 0 undo
make_node; fresh; state >"$W/before"
down_before() {
	aip link set $R0 down
	aip link set $R1 down
	state >"$W/b2"
	rc 0 apply --yes && [ "$(aip -6 addr show dev $R0 scope link)" = "" ] && rc 0 undo
	local r=$?
	state >"$W/now"
	cmp -s "$W/b2" "$W/now" || r=1
	aip link set $R0 up
	aip link set $R1 up
	settled
	return $r
}
t "rails that were down go down again; up, they made no link-local address" down_before
make_node; fresh; state >"$W/before"

terminal() { # terminal ANSWER WANTED: apply on a pseudo terminal
	python3 - "$1" "$2" nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply >"$W/out" 2>&1 <<'PY'
import os, pty, sys, select
answer, want, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(argv[0], argv)
seen, sent = b"", False
while True:
    r, _, _ = select.select([fd], [], [], 20)
    if not r:
        os.kill(pid, 9)
        break
    try:
        part = os.read(fd, 4096)
    except OSError:
        break
    if not part:
        break
    seen += part
    if b"[y/N]" in seen and not sent:
        os.write(fd, answer.encode() + b"\n")
        sent = True
_, st = os.waitpid(pid, 0)
print(seen.decode())
sys.exit(0 if sent and os.waitstatus_to_exitcode(st) == want else 1)
PY
}
t "on a terminal it asks; no: nothing was changed" terminal n 1
t "  really nothing" back
t "on a terminal it asks; y: applied" terminal y 0
t "  and undone" rc 0 undo

json() { python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); assert r["format"] == 1; assert eval(sys.argv[2]), r' "$W/out" "$1" 2>>"$W/err"; }
as_json() { # results alone on stdout
	fresh
	a "$D" -j -q -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>"$W/err" && [ ! -s "$W/err" ] &&
		json 'r["result"] == "applied" and r["id"] == 1 and len(r["operations"]) == 17 and r["put_back"] == []' &&
		a "$D" -j -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>"$W/err" && json 'r["result"] == "nothing" and r["id"] is None' &&
		a "$D" -j -c "$W/conf" --root "$R" undo </dev/null >"$W/out" 2>"$W/err" &&
		json 'r["result"] == "undone" and r["undone"] == [1] and r["restored"] == 17 and r["left"] == 0 and {s["outcome"] for s in r["steps"]} == {"restored"}' &&
		a "$D" -j -c "$W/conf" --root "$R" undo </dev/null >"$W/out" 2>"$W/err" && json 'r["result"] == "nothing" and r["steps"] == []'
}
t "results as JSON" as_json

# ------------------------------------------------------------------ several applies
two_applies() {
	rc 0 apply --yes || return 1
	state >"$W/one"
	cp "$R/run/dsprep/host.json" "$W/report1"
	write_conf 1 2
	rc 0 apply --yes || return 1
	[ "$(ls "$R/var/lib/dsprep/journal" | tail -n 1)" = "$(($(ls "$R/var/lib/dsprep/journal" | head -n 1) + 1))" ]
}
fresh
t "a changed config is a second apply" two_applies
t "undo of the older is refused, naming the newer" rc 1 undo 1
t "  by number" says 'newer applies stand on it: 2'
after_one() { settled; state >"$W/now"; cmp -s "$W/one" "$W/now" && cmp -s "$W/report1" "$R/run/dsprep/host.json"; }
t "undo takes the newest: state and report of the first are back" rc 0 undo
t "  exactly" after_one
t "second one again, then undo --all" rc 0 apply --yes
t "  takes both" rc 0 undo --all
t "  and all is as before" back
write_conf 1
restored() { # an apply that only restores belongs to the one that it restores
	fresh
	rc 0 apply --yes || return 1
	aip link set $R0 mtu 1500
	aip addr del 10.200.1.1/24 dev $R1
	rm "$R/run/dsprep/host.json"
	rc 0 apply --yes && [ "$(ls "$R/var/lib/dsprep/journal")" = 1 ] && rc 0 undo
}
t "an apply that only restores is undone together with what it restores" restored
t "  all is as before" back
replug() { # the interface goes and comes back under the same name
	fresh
	rc 0 apply --yes || return 1
	aip link del $R0
	aip link add $R0 type veth peer name $R0 netns $P
	a sysctl -qw net.ipv6.conf.$R0.accept_dad=0 net.ipv6.conf.$R0.dad_transmits=0
	pip link set $R0 up
	aip link set $R0 up
	settled
	state >"$W/b2"
	rc 0 apply --yes && [ "$(ls "$R/var/lib/dsprep/journal")" = 1 ] || return 1
	rc 0 undo || return 1
	a cat /proc/sys/net/ipv4/conf/$R0/arp_ignore /proc/sys/net/ipv4/conf/$R1/arp_ignore | tr -d '\n' | grep -q 00 || return 1
	[ "$(aip -4 addr show dev $R0)$(aip -4 addr show dev $R1)" = "" ] && [ "$(cat "$W/out" | grep -c 'gone with its interface')" -gt 3 ]
}
t "a replugged interface is prepared again, and one undo takes back both" replug
make_node; fresh; state >"$W/before"

not_held() { # the standing apply touched the interface, but removed no address of the kernel's
	fresh
	a sysctl -qw net.ipv6.conf.$R0.addr_gen_mode=1
	aip addr flush dev $R0 scope link
	state >"$W/b2"
	rc 0 apply --yes && says 'as 1' || return 1
	a sysctl -qw net.ipv6.conf.$R0.addr_gen_mode=0 net.ipv6.conf.$R0.addr_gen_mode=1
	rc 0 apply --yes && says 'remove fe80' && says 'as 2' && rc 0 undo && rc 0 undo || return 1
	aip addr flush dev $R0 scope link
	state >"$W/now"
	cmp -s "$W/b2" "$W/now"
}
t "an apply with a step that the standing one lacks is an apply of its own" not_held
make_node
fresh
state >"$W/before"

# ------------------------------------------------------------------ other boots and namespaces
other_boot() {
	echo 11111111-2222-3333-4444-555555555555 >"$W/boot_id"
	# /proc alone is made private: in a chroot / need not be a mount point.
	a unshare -m --propagation unchanged sh -c "mount --make-rprivate /proc && mount --bind $W/boot_id /proc/sys/kernel/random/boot_id && exec $D -c $W/conf --root $R $*" >"$W/out" 2>&1 </dev/null
}
void_records() {
	rc 0 apply --yes || return 1
	settled; state >"$W/b2"
	other_boot undo || return 1
	settled; state >"$W/now"
	says 'of another boot' && cmp -s "$W/b2" "$W/now" && [ ! -e "$R/run/dsprep/host.json" ]
}
t "network records of another boot are void; the report file is not" void_records
make_node; fresh; state >"$W/before"
power_cut() { # in the middle of an apply, then another boot: the kernel forgot the network, the report stayed
	write_conf 20
	nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
	local p=$!
	pids+=($p)
	watching "$W/out"
	kill -9 $p
	wait $p 2>/dev/null
	make_node
	state >"$W/before"
	write_conf 1
	other_boot apply --yes && says 'did not end' && [ "$(ls "$R/var/lib/dsprep/journal" | wc -l)" = 2 ] && other_boot undo --all && back
}
t "a power cut amid an apply: the next boot's apply starts afresh" power_cut
make_node; fresh; state >"$W/before"
other_ns() {
	rc 0 apply --yes || return 1
	unshare --net "$D" -c "$W/conf" --root "$R" undo >"$W/out" 2>&1
	local r=$?
	[ $r = 1 ] && says 'network namespace' && says 'journal/1/log' && rc 0 undo
}
t "a journal of another network namespace is refused by name" other_ns
t "  and undone in its own" back

# ------------------------------------------------------------------ what somebody else changed
foreign_change() {
	fresh
	rc 0 apply --yes || return 1
	aip link set $R0 mtu 4000
	a sysctl -qw net.ipv4.conf.$R1.arp_announce=1
	rc 1 undo && says "mtu 9000 on $R0.*LEFT" && says "arp_announce = 2 on $R1.*LEFT" &&
		aip -o link show $R0 | grep -q "mtu 4000 " && [ "$(a cat /proc/sys/net/ipv4/conf/$R1/arp_announce)" = 1 ] &&
		[ "$(aip -4 addr show dev $R0)" = "" ] && rc 0 undo
}
t "undo leaves and names what somebody else changed, and does the rest" foreign_change
aip link set $R0 mtu 1500
a sysctl -qw net.ipv4.conf.$R1.arp_announce=0
t "  nothing else is left" back
already() {
	fresh
	rc 0 apply --yes || return 1
	aip addr del 10.200.0.1/24 dev $R0
	a sysctl -qw net.ipv4.conf.$R0.arp_ignore=0
	rm "$R/run/dsprep/host.json"
	rc 0 undo
}
t "a thing already gone is fine" already
t "  all is as before" back
changed_report() {
	fresh
	rc 0 apply --yes || return 1
	echo >>"$R/run/dsprep/host.json"
	rc 1 undo && says 'host.json.*LEFT' && [ -e "$R/run/dsprep/host.json" ]
}
t "a report that somebody else edited is left and named" changed_report
t "  all else is as before" back

# ------------------------------------------------------------------ what could not be put back is not taken away
beyond() {
	fresh
	aip addr add 10.99.0.1/24 dev $R0
	aip route add 10.97.0.0/16 nexthop via 10.99.0.2 dev $R0 nexthop via 192.0.2.2 dev $M
	state >"$W/b2"
	rc 1 apply --yes && says '10.97.0.0/16' && says 'ip route del' || return 1
	state >"$W/now"
	cmp -s "$W/b2" "$W/now"
}
t "a route that undo could not restore: refused by name, all put back" beyond
aip route del 10.97.0.0/16
with_routes() {
	aip route add 10.97.0.0/16 via 10.99.0.2 metric 50
	state >"$W/b2"
	rc 0 apply --yes && [ -z "$(aip route show 10.97.0.0/16)" ] && rc 0 undo || return 1
	state >"$W/now"
	cmp -s "$W/b2" "$W/now"
}
t "routes that went with an address come back with it" with_routes
aip addr del 10.99.0.1/24 dev $R0
aip route flush 10.97.0.0/16

# ------------------------------------------------------------------ signals, management, locks
sig() { # sig NAME: sent while it watches
	fresh
	write_conf 20
	nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
	local p=$! r
	pids+=($p)
	watching "$W/out"
	kill -"$1" $p
	wait $p
	r=$?
	[ $r = 4 ] && says "SIG$1" && back && [ ! -e "$R/run/dsprep/host.json" ] && rc 0 undo && says 'nothing to undo'
}
for s in INT TERM HUP; do t "SIG$s while it watches: reverted, 4" sig $s; done
blocked() { # started by a program that blocks the signal
	fresh
	write_conf 20
	nsenter -t $A -n python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execv(sys.argv[1], sys.argv[1:])' "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
	local p=$!
	pids+=($p)
	watching "$W/out"
	kill -TERM $p
	wait $p
	[ $? = 4 ] && says SIGTERM && back
}
t "SIGTERM though the caller blocked it: reverted, 4" blocked
set_back() { # another manager takes the address away while it watches
	fresh
	write_conf 2
	nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
	local p=$!
	pids+=($p)
	watching "$W/out"
	aip addr del 10.200.1.1/24 dev $R1
	wait $p
	[ $? = 1 ] && says 'verify: add 10.200.1.1/24' && says 'not there' && back && rc 0 undo && says 'nothing to undo'
}
t "a step set back by somebody else while it watches: named, all put back, 1" set_back
lose() { # lose SECONDS DO UNDO: management damaged for so long while it watches; sets r
	fresh
	write_conf "${4:-20}"
	nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
	local p=$!
	pids+=($p)
	watching "$W/out"
	eval "$2"
	if [ "$1" != ever ]; then sleep "$1"; eval "$3"; fi
	wait $p
	r=$?
	[ "$1" != ever ] || eval "$3"
}
carrier() { lose ever "pip link set $M down" "pip link set $M up" && [ $r = 4 ] && says 'carrier gone' && back; }
address() { lose ever "aip addr del 192.0.2.1/24 dev $M" "aip addr add 192.0.2.1/24 dev $M; aip route add default via 192.0.2.2" && [ $r = 4 ] && says 'address 192.0.2.1 gone' && back; }
route() { lose ever "aip route del default" "aip route add default via 192.0.2.2" && [ $r = 4 ] && says 'route 0.0.0.0/0 gone' && back; }
blink() { lose 1 "aip route del default" "aip route add default via 192.0.2.2" 4 && [ $r = 0 ] && rc 0 undo && back; }
t "management loses its carrier: reverted, 4" carrier
t "management loses its address: reverted, 4" address
t "management loses its route: reverted, 4" route
t "a loss of one second is survived" blink
route6() {
	aip addr add 2001:db8::1/64 dev $M nodad
	aip -6 route add default via 2001:db8::2 dev $M
	lose ever "aip -6 route del default" : && [ $r = 4 ] && says 'route ::/0 gone'
	local rc=$?
	aip addr del 2001:db8::1/64 dev $M
	[ $rc = 0 ] && back
}
t "management loses its IPv6 default route: reverted, 4" route6
two_at_once() {
	fresh
	write_conf 5
	nsenter -t $A -n "$D" -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/first" 2>&1 &
	local p=$! r1
	pids+=($p)
	watching "$W/first"
	rc 75 apply --yes && says "pid $p" && rc 75 undo && says "pid $p"
	r1=$?
	wait $p || r1=1
	rc 0 undo || r1=1
	return $r1
}
t "two at once: the second exits 75 and names the holder" two_at_once
t "  all is as before" back

# ------------------------------------------------------------------ damage
damage() { # damage TEXT COMMAND: done to the log of a standing apply
	fresh
	rc 0 apply --yes || return 1
	settled
	state >"$W/b2"
	cp -a "$R/var/lib/dsprep/journal/1" "$W/saved"
	eval "$1"
	local r=0
	rc 1 undo && says 'journal/1/log' && says 'damaged|newer' || r=1
	write_conf 1 2
	rc 1 apply --yes && says 'journal/1/log' || r=1
	state >"$W/now"
	cmp -s "$W/b2" "$W/now" || r=1
	write_conf 1
	rm -rf "$R/var/lib/dsprep/journal/1"
	mv "$W/saved" "$R/var/lib/dsprep/journal/1"
	cp "$W/out" "$W/out.kept"
	rc 0 undo && back || r=1
	cp "$W/out.kept" "$W/out"
	return $r
}
L=$R/var/lib/dsprep/journal/1/log
flip() { python3 -c 'import sys; f=open(sys.argv[1],"r+b"); d=bytearray(f.read()); i=int(len(d)*float(sys.argv[2])); d[i]^=1<<int(sys.argv[3]); f.seek(0); f.write(d)' "$L" "$1" "$2"; }
t "a flipped bit in the middle: refused by name, nothing done" damage "flip 0.5 3"
t "a flipped bit in the first length" damage "flip 0 7"
t "a flipped bit at the end" damage "flip 0.9999 0"
t "a journal cut in half" damage "truncate -s \$((\$(stat -c %s $L) / 2)) $L"
t "a journal cut by one byte" damage "truncate -s -1 $L"
t "an emptied journal" damage "truncate -s 0 $L"
t "a damaged commit mark" damage "echo '{}' >$R/var/lib/dsprep/journal/1/committed"
t "a journal of a newer format" damage "python3 -c 'import sys,struct
d=open(\"$L\",\"rb\").read(); n=d[0]|d[1]<<8; j=d[8:8+n].replace(b\"\\\"format\\\": 1\",b\"\\\"format\\\": 2\")
c=0xffffffff
for x in j:
    c^=x
    for _ in range(8): c=(c>>1)^(0x82f63b78 if c&1 else 0)
open(\"$L\",\"wb\").write(struct.pack(\"<HHI\",n,n^0xffff,c^0xffffffff)+j+d[8+n:])'; rm $R/var/lib/dsprep/journal/1/committed"

# ------------------------------------------------------------------ hostile trees
hostile() { # hostile COMMAND: the tree below the root leads elsewhere
	fresh
	mkdir "$W/elsewhere" 2>/dev/null
	eval "$1"
	rc 1 apply --yes && [ -z "$(ls -A "$W/elsewhere")" ] && back
}
t "run is a symlink: refused" hostile "ln -s $W/elsewhere $R/run"
t "run/dsprep is a symlink: refused" hostile "mkdir $R/run; ln -s $W/elsewhere $R/run/dsprep"
t "the journal directory is a symlink: refused" hostile "mkdir -p $R/var/lib/dsprep; chmod 700 $R/var/lib/dsprep; ln -s $W/elsewhere $R/var/lib/dsprep/journal"
t "run/dsprep belongs to somebody else: refused" hostile "mkdir -p $R/run/dsprep; chown 65534 $R/run/dsprep"
t "host.json is a symlink: refused, all put back" hostile "mkdir -p $R/run/dsprep; ln -s $W/elsewhere/x $R/run/dsprep/host.json"
t "host.json is a FIFO: refused, all put back" hostile "mkdir -p $R/run/dsprep; mkfifo $R/run/dsprep/host.json"
t "the lock is a FIFO: refused" hostile "mkdir -p $R/run/dsprep; mkfifo -m 600 $R/run/dsprep/lock"

odd_umask() {
	fresh
	(umask 0777; rc 0 apply --yes) && rc 0 plan && (umask 0277; rc 0 undo) && back
}
t "an umask that shuts out everybody: apply, plan and undo as ever" odd_umask
file_limit() { # the journal cannot grow beyond it
	fresh
	(
		ulimit -f 1
		a "$D" -q -c "$W/conf" --root "$R" apply --yes </dev/null >/dev/null 2>&1
	)
	[ $? = 1 ] && back && rc 0 undo && back
}
t "a limit on the size of files: put back at once, 1" file_limit
last_number() { # the next number would be one that nobody reads
	fresh
	mkdir -p "$R/var/lib/dsprep/journal/999999999"
	chmod 700 "$R/var/lib/dsprep" "$R/var/lib/dsprep/journal" "$R/var/lib/dsprep/journal/999999999"
	rc 1 apply --yes && says 999999999 && back
}
t "a directory of the last number in the journal: refused by name, nothing done" last_number

# ------------------------------------------------------------------ kills at random instants
random_kills() {
	fresh
	local i p n=0
	for i in $(seq 20); do
		nsenter -t $A -n "$D" -q -c "$W/conf" --root "$R" apply --yes </dev/null >"$W/out" 2>&1 &
		p=$!
		pids+=($p)
		sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
		kill -9 $p 2>/dev/null && n=$((n + 1))
		wait $p 2>/dev/null
		if [ $((i % 5)) = 0 ]; then
			rc 0 apply --yes && rc 0 plan || return 1
		fi
		rc 0 undo && back && [ ! -e "$R/run/dsprep/host.json" ] || { echo "kill $i" >>"$W/out"; return 1; }
	done
	[ $n -ge 15 ]
}
t "killed at twenty random instants: undo or apply reaches the right state" random_kills
exit $bad
