#!/bin/bash
# proxy.sh: the nginx block of dsengine-clients(7), run as it stands there but for ports and files.
# nginx comes from the machine, or from its Debian package, unpacked and not installed.
set -u
cd "$(dirname "$0")/../.." || exit 2
B=${B:-build}
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
command -v openssl >/dev/null || { echo "openssl is not installed"; exit 77; }
[ -x "$B/dsengine" ] || { echo "$B/dsengine is not built"; exit 1; }
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
nginx=$(PATH=$PATH:/usr/sbin command -v nginx)
if [ -z "$nginx" ]; then
	(cd "$dir" && timeout 120 apt-get download -qq nginx && dpkg -x nginx_*.deb root) >/dev/null 2>&1
	nginx=$dir/root/usr/sbin/nginx
	"$nginx" -v 2>/dev/null >&2 || { echo "no nginx here, and its package cannot be had or run"; exit 77; }
fi
# The first literal block behind the section's title.
awk '/^\.Ss nginx in front/ { on = 1 } on && /^\.Ed/ { exit } on && text { print } on && /^\.Bd/ { text = 1 }' \
	man/dsengine-clients.7 | sed 's/\\e/\\/g' >"$dir/block"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=llm.example.net \
	-addext subjectAltName=DNS:llm.example.net -keyout "$dir/llm.key" -out "$dir/llm.pem" 2>/dev/null || exit 2
cp "$B/dsengine" "$dir/dsengine" && cp -r tests/fixtures/demo-model "$dir/demo-model" || exit 2
user=()
if [ "$(id -u)" = 0 ]; then
	chmod -R a+rX "$dir"
	user=(--user 65534)
fi
python3 tests/peers/proxy.py --engine "$dir/dsengine" --model "$dir/demo-model" --dir "$dir" --nginx "$nginx" "${user[@]}"
