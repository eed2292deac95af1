#!/bin/sh
set -e

# A package kubeadm may have this drop-in below /lib, which is a link to /usr/lib. To dpkg these are two files: when it
# replaces or purges that package it deletes the one, and ours is gone, perhaps with its directory.
dropin=/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
if [ ! -e "$dropin" ]; then
	install -D -m 0644 /usr/share/slipway/10-kubeadm.conf "$dropin.new"
	mv "$dropin.new" "$dropin"
fi

# systemd reads the units; nothing is enabled, started or restarted.
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
