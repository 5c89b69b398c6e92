#!/bin/bash
# venv.sh PACKAGE...: a virtual environment with these packages from PyPI; prints its python.
# It stays in build/peers. Exit 77 where no such environment can be made or PyPI is out of reach.
set -u
cd "$(dirname "$0")/../.." || exit 2
venv=${B:-build}/peers
exec 9>"${B:-build}/.peers.lock"
flock -w 300 9 || exit 77
if [ ! -x "$venv/bin/python" ]; then
	python3 -m venv "$venv" >"$venv.log" 2>&1 || {
		echo "python3 cannot make a virtual environment: $(tail -n 1 "$venv.log")" >&2
		rm -rf "$venv"
		exit 77
	}
fi
for p in "$@"; do
	"$venv/bin/python" -c "import importlib.metadata as m; m.version('${p%%[=<>]*}')" 2>/dev/null && continue
	timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check "$p" >"$venv.log" 2>&1 || {
		echo "$p cannot be installed from PyPI: $(tail -n 1 "$venv.log")" >&2
		exit 77
	}
done
echo "$venv/bin/python"
