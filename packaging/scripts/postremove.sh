#!/bin/sh
# $1 is "remove" in Debian, and 0 for the last rpm; otherwise this is an upgrade or a purge.
set -e
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
case "$1" in
remove | 0)
	dropin=systemd/system/kubelet.service.d/10-kubeadm.conf
	if [ -e /var/lib/kubelet/config.yaml ] && [ ! -e "/usr/lib/$dropin" ] && [ ! -e "/etc/$dropin" ]; then
		cat >&2 <<-'END'
			slipway: this host is still a node of a cluster. Its kubelet goes on, but without 10-kubeadm.conf it will not
			find its settings when it starts again, such as at the next boot. Install slipway or kubeadm before that, or
			take the node out of its cluster: install slipway again, and run `slipway reset` before you remove it.
		END
	fi
	;;
esac
