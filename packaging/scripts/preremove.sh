#!/bin/sh
# Before the removal: deb (remove …; upgrade …) and rpm (0 for the last, more for an upgrade). Nothing else is stopped: the
# node goes on.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now slipway-certs-renew.timer >/dev/null 2>&1 || true
	fi
	;;
esac
