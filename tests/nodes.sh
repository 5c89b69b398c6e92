# nodes.sh: two nodes as network namespaces, for the demo and the tests in lab/. Sourced by bash.
#
# A namespace lives as long as a sleeping process of ours and has no name: nothing is mounted, so this works in
# a chroot as well. The kernel ends that process with the script, even one killed without a chance to clean up.
# Each node has two veth rails with a Spark's interface names and, for the demo, a management link.

RAILS="enp1s0f0np0 enP2p1s0f0np0"
MGMT=enP7s7
NODE_A="" NODE_B=""	# pids that hold the namespaces

nodes_possible() { [ "$(id -u)" = 0 ] && unshare --net true 2>/dev/null; }

nodes_start() {
	local own pid i
	own=$(readlink /proc/self/ns/net)
	setpriv --pdeathsig KILL unshare --net sleep 3600 </dev/null >/dev/null 2>&1 &
	NODE_A=$!
	setpriv --pdeathsig KILL unshare --net sleep 3600 </dev/null >/dev/null 2>&1 &
	NODE_B=$!
	disown "$NODE_A" "$NODE_B"
	for pid in "$NODE_A" "$NODE_B"; do
		for i in $(seq 200); do
			[ "$(readlink "/proc/$pid/ns/net")" != "$own" ] && [ -n "$(readlink "/proc/$pid/ns/net")" ] && break
			[ "$i" = 200 ] && return 1
			sleep 0.02
		done
	done
	in_a ip link set lo up && in_b ip link set lo up
}
nodes_stop() {
	local pid
	for pid in $NODE_A $NODE_B; do kill -9 "$pid" 2>/dev/null; done
	NODE_A="" NODE_B=""
}
in_a() { nsenter -t "$NODE_A" -n "$@"; }
in_b() { nsenter -t "$NODE_B" -n "$@"; }
link_new() { in_a ip link add "$1" type veth peer name "$1" netns "$NODE_B"; }

# Bytes that a node sent on an interface, by the kernel's counters. (/sys would show another namespace's.)
tx_bytes() { # tx_bytes in_a|in_b INTERFACE
	"$1" ip -s -j link show "$2" | python3 -c 'import json,sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'
}
