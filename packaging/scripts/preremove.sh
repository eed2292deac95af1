#!/bin/sh
# $1 is "remove" in Debian, and 0 for the last rpm; otherwise this is an upgrade. Only our own timers are stopped.
set -e
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --no-reload disable slipway-certs-renew.timer slipway-etcd-snapshot.timer >/dev/null 2>&1 || true
	fi
	if [ -d /run/systemd/system ]; then
		systemctl stop slipway-certs-renew.timer slipway-etcd-snapshot.timer >/dev/null 2>&1 || true
	fi
	;;
esac
