#!/bin/sh
set -e

# A package kubeadm may have this drop-in below /lib, a link to /usr/lib. dpkg takes these for two files: when it replaces or
# purges that package, it deletes its file, and with it ours, and perhaps the directory.
dropin=/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
if [ ! -e "$dropin" ]; then
	install -D -m 0644 /usr/share/slipway/10-kubeadm.conf "$dropin.new"
	mv "$dropin.new" "$dropin"
fi

# systemd reads the units; nothing is enabled, started or restarted.
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
