#!/bin/sh
# After the installation: deb (configure …) and rpm (1 for the first, more for an upgrade).
set -e

# The package kubeadm may have had this drop-in below /lib, which is /usr/lib: dpkg then deletes ours with it.
dropin=/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf
if [ ! -e "$dropin" ] && [ -e /usr/share/slipway/10-kubeadm.conf ]; then
	mkdir -p "${dropin%/*}"
	cp /usr/share/slipway/10-kubeadm.conf "$dropin.new"
	chmod 0644 "$dropin.new"
	mv "$dropin.new" "$dropin"
fi

if [ -d /run/systemd/system ]; then
	# Units are read again; nothing is started or restarted.
	systemctl daemon-reload || true
fi

# The preset leaves the timer off. Only a first installation asks it.
case "$1" in
configure) if [ -z "$2" ]; then first=yes; fi ;;
1) first=yes ;;
esac
if [ "$first" = yes ] && command -v systemctl >/dev/null; then
	systemctl preset slipway-certs-renew.timer >/dev/null 2>&1 || true
fi
