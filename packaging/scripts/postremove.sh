#!/bin/sh
# $1 is "remove" in Debian, and 0 for the last rpm; otherwise this is an upgrade or a purge.
set -e
case "$1" in
remove | 0)
	# Only now, as a removal that fails earlier leaves the timers on. systemctl cannot disable them without their files, but still
	# stops them until it reloads. Nothing else is stopped.
	rm -f /etc/systemd/system/timers.target.wants/slipway-certs-renew.timer /etc/systemd/system/timers.target.wants/slipway-etcd-snapshot.timer
	if [ -d /run/systemd/system ]; then
		systemctl stop slipway-certs-renew.timer slipway-etcd-snapshot.timer >/dev/null 2>&1 || true
	fi
	;;
esac
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
case "$1" in
remove | 0)
	# kubeadm's drop-in may be there, or another that gives the kubelet its settings, like that of `slipway host prepare`.
	settings=
	for dir in /etc /usr/local/lib /usr/lib; do
		kubelet=$dir/systemd/system/kubelet.service
		if [ -e "$kubelet.d/10-kubeadm.conf" ] || grep -qs -e --config= "$kubelet" "$kubelet.d"/*.conf; then
			settings=yes
		fi
	done
	if [ -e /var/lib/kubelet/config.yaml ] && [ -z "$settings" ]; then
		cat >&2 <<-'END'
			slipway: this host is still a node of a cluster. Its kubelet keeps running, but without 10-kubeadm.conf it
			will not find its settings at its next start, such as the next boot. Install slipway or kubeadm before that,
			or take the node out of its cluster: install slipway again, and run `slipway reset` before you remove it.
		END
	fi
	;;
esac
