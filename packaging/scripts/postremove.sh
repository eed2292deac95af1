#!/bin/sh
# After the removal. The kubelet runs on, but without the drop-in it would not find its settings at its next start.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
case "$1" in
remove | 0)
	if [ -e /var/lib/kubelet/config.yaml ] && [ ! -e /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf ] &&
		[ ! -e /etc/systemd/system/kubelet.service.d/10-kubeadm.conf ]; then
		echo "This host is still a node of a cluster, and its kubelet will not start again without 10-kubeadm.conf:" >&2
		echo "install slipway or kubeadm again, or run 'slipway reset' before you remove the package." >&2
	fi
	;;
esac
