#!/bin/bash
# lint.sh: formatting, static checks, man pages, shell scripts. Prints what is wrong; exit 1 if anything is.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build}
bad=0
tidy=$(mktemp) || exit 2
trap 'rm -f "$tidy"' EXIT
say() { printf '  %-7s %s\n' "$1" "$2"; }

# Sources of the product, tests and tools, as git knows them (or as they lie here, in a tarball).
if git rev-parse --git-dir >/dev/null 2>&1; then
	mapfile -t c < <(git ls-files '*.c' '*.h')
	mapfile -t sh < <(git ls-files '*.sh' .ci/run)
else
	mapfile -t c < <(find sysprep bpf engine kernels tests -name '*.[ch]')
	mapfile -t sh < <(find tests .ci -name '*.sh' -o -path '*.ci/run')
fi

say FORMAT "${#c[@]} files"
clang-format --dry-run -Werror "${c[@]}" || bad=1

say TIDY "product sources"
# One flag per line where clang-tidy (and clangd) look for it: no shell takes quotes away on the way.
make -s --no-print-directory compile_flags.txt
printf '%s\n' "${c[@]}" | grep -E '^(sysprep|engine|kernels)/.*\.c$' |
	xargs -r -P "$(nproc)" -n 1 clang-tidy --quiet 2>/dev/null >"$tidy"
if grep -qE '(warning|error):' "$tidy"; then
	cat "$tidy"
	bad=1
fi

say MAN "$(ls man 2>/dev/null | tr "\n" " ")"
make -s --no-print-directory man || bad=1

say SHELL "${#sh[@]} scripts"
for s in "${sh[@]}"; do
	case $(head -n 1 "$s") in *bash*) bash -n "$s" || bad=1 ;; *) sh -n "$s" || bad=1 ;; esac
	[ -x "$s" ] || ! head -n 1 "$s" | grep -q '^#!' || { echo "$s: not executable"; bad=1; }
done

say ROOMS "includes and words"
# A room sees only what it may include (the include paths enforce it for project headers).
if grep -nE '#include [<"](microhttpd|pcre2|infiniband/|nccl)' sysprep/*.c sysprep/*.h sysprep/base/* 2>/dev/null; then
	echo "sysprep/ includes a library that belongs to engine/"
	bad=1
fi
if grep -nE '#include <(netlink|jansson|libnl|sys/capability)' sysprep/base/* kernels/*.[ch] kernels/*/*.[ch] 2>/dev/null; then
	echo "base/ and kernels/ use libc only"
	bad=1
fi
if grep -rnE '\b(expf|logf|log1pf|sinf|cosf|tanhf|powf|rsqrtf)\(' kernels/ --include='*.[ch]' | grep -v '/\*' | grep -v ' \* '; then
	echo "kernels/ must not use libm's transcendental functions: they differ between versions"
	bad=1
fi
exit $bad
