#!/bin/bash
# doctor.sh: what plan and doctor say in a network namespace with two veth rails, healthy and with each
# fault in turn. Real kernel, real netlink; files below a folder of its own. Needs root.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
[ "$(id -u)" = 0 ] || { echo "needs root, for network namespaces"; exit 77; }
if [ -z "${DOCTOR_LAB:-}" ]; then
	unshare --net true 2>/dev/null || { echo "this machine makes no network namespace"; exit 77; }
	# The namespace and all in it end with this process.
	DOCTOR_LAB=1 exec unshare --net "$0" "$@"
fi

W=$(mktemp -d) || exit 2
trap 'rm -rf "$W"' EXIT
chmod 755 "$W"
cp "$B/dsprep" "$W/dsprep" || exit 2
mkdir -p "$W/root/etc" "$W/root/run"
R0=enp1s0f0np0 R1=enP2p1s0f0np0
bad=0
ok() { echo "ok $1"; }
no() { echo "not ok $1"; [ -z "${2:-}" ] || sed 's/^/#   /' "$2"; bad=1; }

# The checks of the network as "id subject severity fixed"; other checks depend on the machine.
cat >"$W/findings.py" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["format"] == 1 and "T" in d["time"] and d["node"]
rank = {"info": 0, "warning": 1, "error": 2, "critical": 2}
code = 0
for c in d["checks"]:
    if c["verdict"] == "undetermined":
        assert c["why"]
        if c["matters"] and code != 2:
            code = 3
    if c["verdict"] != "finding":
        continue
    r = rank[c["severity"]]
    code = 2 if r == 2 else 1 if r == 1 and code == 0 else code
    if c["id"] not in ("kho-scratch", "memlock-low"):
        print(c["id"], c["subject"], c["severity"], "fixed" if c["fixed_by_apply"] else "manual")
assert code == d["exit"] == int(sys.argv[2]), (code, d["exit"], sys.argv[2])
PY

dsprep() { "$W/dsprep" --root "$W/root" "$@"; }
conf() { printf '[cluster]\nshape = pair\nnode = 1\nmanagement = m0\n%s\n' "${1:-}" >"$W/root/etc/dsprep.conf"; }

# expect NAME FINDING...: the doctor finds exactly these, and its exit status fits its JSON.
expect() {
	local name=$1
	shift
	dsprep -j doctor >"$W/json" 2>"$W/err"
	local rc=$?
	if ! python3 "$W/findings.py" "$W/json" $rc >"$W/got" 2>"$W/py"; then
		no "$name (exit status and JSON fit)" "$W/py"
		return
	fi
	for f in "$@"; do echo "$f"; done | sort >"$W/want"
	sort "$W/got" >"$W/got.s"
	if diff "$W/want" "$W/got.s" >"$W/diff"; then ok "$name"; else no "$name" "$W/diff"; fi
}
# status NAME WANT COMMAND...: exit status
status() {
	local name=$1 want=$2
	shift 2
	"$@" >"$W/out" 2>"$W/err"
	local rc=$?
	if [ $rc = "$want" ]; then ok "$name"; else no "$name: exit status $rc, not $want" "$W/err"; fi
}
fresh() { # both rails as after an apply
	local i
	for i in $R0 $R1 p0 p1 m0 m1 d0; do ip link del $i 2>/dev/null; done
	ip link add $R0 type veth peer name p0
	ip link add $R1 type veth peer name p1
	ip link add m0 type veth peer name m1
	for i in p0 p1 m0 m1; do ip link set $i up; done
	ip addr add 192.168.7.2/24 dev m0
	ip route add default via 192.168.7.1
	for i in $R0 $R1; do
		for kv in ipv4/conf/$i/arp_ignore=1 ipv4/conf/$i/arp_announce=2 ipv4/conf/$i/rp_filter=2 ipv4/conf/$i/arp_filter=0; do echo "${kv#*=}" >"/proc/sys/net/${kv%=*}"; done
		[ ! -e /proc/sys/net/ipv6/conf/$i ] || { echo 1 >/proc/sys/net/ipv6/conf/$i/addr_gen_mode; echo 0 >/proc/sys/net/ipv6/conf/$i/accept_ra; }
		ip link set $i mtu 9000 up
	done
	ip addr add 10.200.0.1/24 dev $R0
	ip addr add 10.200.1.1/24 dev $R1
}
state() { ip -j addr; ip -j route show table all; cat /proc/sys/net/ipv4/conf/*/{arp_ignore,rp_filter}; ls -lR --time-style=full-iso "$W/root"; }

# ---- without a config
fresh
status "plan without a config exits 64" 64 dsprep plan
grep -q '^management = m0$' "$W/out" && grep -q 'plan --write-config --node N' "$W/err" && ok "it prints the config that fits and how to write it" || no "it prints the config that fits and how to write it" "$W/out"
expect "healthy rails without a config: no finding"
ip addr flush dev $R1
expect "an unaddressed twin without a config" "twin-unaddressed $R1 error manual"
status "the first config is written" 0 dsprep plan --write-config --node 1
status "and never over another" 64 dsprep plan --write-config --node 1
status "a plan from the written config has something to do" 3 dsprep plan
if command -v setpriv >/dev/null; then
	rm "$W/root/etc/dsprep.conf"
	status "only root may write it" 77 setpriv --reuid 65534 --regid 65534 --clear-groups "$W/dsprep" --root "$W/root" plan --write-config --node 1
else
	echo "skip only root may write it: no setpriv"
fi

# ---- with a config, healthy
conf
fresh
expect "healthy rails: no finding"
dsprep doctor 2>/dev/null | grep -q "identified by name" && dsprep -j doctor 2>/dev/null | grep -q '"identified_by": "name"' && ok "the doctor says that names were believed" || no "the doctor says that names were believed"
state >"$W/before"
dsprep doctor >/dev/null 2>&1
dsprep plan >/dev/null 2>&1
state >"$W/after"
if cmp -s "$W/before" "$W/after"; then ok "doctor and plan change nothing"; else no "doctor and plan change nothing"; fi
dsprep -j plan >"$W/plan"
if python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); assert [o["op"] for o in d["operations"]] == ["host-report"], d["operations"]; assert [r["ipv4"] for r in d["rails"]] == ["10.200.0.1/24", "10.200.1.1/24"]; assert {r["identified_by"] for r in d["rails"]} == {"name"}' "$W/plan" 2>"$W/err"; then ok "only the host report is missing"; else no "only the host report is missing" "$W/err"; fi
if command -v setpriv >/dev/null; then
	dsprep -j doctor 2>/dev/null | grep -v '"time"' >"$W/root.json"
	setpriv --reuid 65534 --regid 65534 --clear-groups "$W/dsprep" --root "$W/root" -j doctor 2>/dev/null | grep -v '"time"' >"$W/user.json"
	# debugfs is root's alone; everything else must read the same.
	if cmp -s "$W/root.json" "$W/user.json" || [ -d /sys/kernel/debug/kho ]; then ok "an ordinary user gets the same verdicts"; else no "an ordinary user gets the same verdicts"; fi
else
	echo "skip an ordinary user gets the same verdicts: no setpriv"
fi

# ---- each fault
ip link set p0 down
expect "no carrier" "no-carrier $R0 error manual"
fresh
ip link set $R1 down
expect "a rail that is administratively down" "no-carrier $R1 error fixed" "twin-unaddressed $R1 error fixed"
fresh
ip link set p0 down
ip link set p1 down
expect "no carrier on either rail, addresses there" "no-carrier $R0 error manual" "no-carrier $R1 error manual"
fresh
ip addr flush dev $R1
expect "an address is missing" "twin-unaddressed $R1 error fixed"
fresh
ip route del 10.200.1.0/24 dev $R1
expect "an address whose route somebody deleted" "twin-unaddressed $R1 error fixed"
fresh
ip addr add 10.9.9.9/24 dev $R0
expect "two addresses on one rail" "twin-unaddressed $R0 error fixed"
fresh
ip addr flush dev $R0
ip addr flush dev $R1
ip addr add 192.168.100.10/24 dev $R0
ip addr add 192.168.100.14/24 dev $R1
expect "twins in one subnet" "twin-unaddressed $R0 error fixed" "twin-unaddressed $R1 error fixed" "twins-one-subnet $R0 error fixed"
fresh
ip addr flush dev $R1
ip addr add 169.254.7.7/16 dev $R1
expect "a link-local address" "twin-unaddressed $R1 error fixed" "link-local-only $R1 warning fixed"
rm "$W/root/etc/dsprep.conf"
expect "a link-local address without a config is a warning" "link-local-only $R1 warning manual"
conf
fresh
ip link set $R1 mtu 1500
expect "an MTU that is not the config's" "mtu-mismatch $R1 error fixed"
fresh
ip link add d0 type veth peer name d1
ip addr add 10.200.0.9/16 dev d0
ip link set d0 up
expect "another local network overlaps" "address-duplicate d0 critical manual" "address-duplicate $R0 critical manual" "address-duplicate $R1 critical manual"
status "and plan refuses it" 64 dsprep plan
grep -q "dsprep.conf (subnets" "$W/err" && grep -q "10.200.0.9/16 of d0" "$W/err" && ok "naming the file, the network and the interface" || no "naming the file, the network and the interface" "$W/err"
fresh
ip addr flush dev $R1
ip addr add 10.200.0.1/24 dev $R1
expect "one address on both twins" "twin-unaddressed $R1 error fixed" "twins-one-subnet $R0 error fixed" "address-duplicate $R1 critical fixed"

# ---- what does not fit
fresh
conf "mtu = 9k"
status "a wrong config is refused by plan" 64 dsprep plan
grep -q "dsprep.conf line 5" "$W/err" && ok "with file and line" || no "with file and line" "$W/err"
conf
sed -i 's/m0/nosuch0/' "$W/root/etc/dsprep.conf"
status "a management interface that is not there" 64 dsprep plan
grep -q "line 4 (management)" "$W/err" && grep -q "management = m0" "$W/err" && ok "is named with the line to write" || no "is named with the line to write" "$W/err"
for i in $R0 $R1; do ip link del $i; done
conf
status "no rail at all: plan refuses" 64 dsprep plan
expect "and the doctor has nothing to find"
exit $bad
