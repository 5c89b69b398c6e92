#!/bin/bash
# path-loss.sh: a rail is lost under a running answer, twenty times in each direction; see path_loss.py.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/nodes.sh
nodes_possible || { echo "needs root, for network namespaces"; exit 77; }
RUN=$(mktemp -d) || exit 2
clean_up() {
	trap '' INT TERM HUP PIPE
	nodes_stop
	rm -rf "$RUN"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP PIPE
nodes_start || { echo "not ok namespaces"; exit 1; }
for r in 0 1; do
	netdev=$(echo $RAILS | cut -d' ' -f$((r + 1)))
	link_new "$netdev" || exit 1
	in_a ip link set "$netdev" mtu 9000 up && in_a ip addr add 10.200.$r.1/24 dev "$netdev"
	in_b ip link set "$netdev" mtu 9000 up && in_b ip addr add 10.200.$r.2/24 dev "$netdev"
done
python3 tests/lab/path_loss.py "${B:-build}" "$RUN" "$NODE_A" "$NODE_B" "$@"
