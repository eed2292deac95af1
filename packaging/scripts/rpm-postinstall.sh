#!/bin/sh
# $1 is the number of installed versions of the package: 1, or 2 during an upgrade.
set -e

# systemd reads the units; nothing is started or restarted.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload >/dev/null || true
fi

# The preset decides whether the timers are enabled: ours leaves them off, an administrator's takes precedence.
if [ "$1" -eq 1 ] && command -v systemctl >/dev/null; then
	systemctl --no-reload preset slipway-certs-renew.timer slipway-etcd-snapshot.timer >/dev/null 2>&1 || true
fi
