#!/bin/sh
# deps.sh install DEPS DESTDIR PACKAGE...: installs the missing packages, or names them.
# Installs only as root, on an apt system, and never with DEPS=no or DESTDIR set.
set -eu
shift
deps=$1 destdir=$2
shift 2
command -v dpkg-query >/dev/null 2>&1 || exit 0	# another distribution: the compiler will tell
missing=""
for p in "$@"; do
	dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^.i' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$deps" = no ] || [ -n "$destdir" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "packages missing:$missing" >&2
	echo "   try: sudo apt-get install -y --no-install-recommends$missing" >&2
	[ "$deps" = no ] && exit 0	# the packager knows better; the build says what it lacks
	exit 1
fi
echo "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt-get update -qq
# Services of packages must not start on this machine because of us.
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1 || {
	tail -n 20 "$log" >&2
	exit 1
}
echo "installed"
