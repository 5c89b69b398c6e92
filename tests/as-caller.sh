#!/bin/sh
# as-caller.sh COMMAND...: runs it as the user who called sudo, or as the present user without sudo.
if [ "$(id -u)" = 0 ] && [ -n "${SUDO_UID:-}" ] && [ "$SUDO_UID" != 0 ] && [ -n "${SUDO_GID:-}" ]; then
	exec setpriv --reuid "$SUDO_UID" --regid "$SUDO_GID" --init-groups -- "$@"
fi
exec "$@"
