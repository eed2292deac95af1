#!/bin/sh
# What a cluster may change on a host, a line for each thing.
set -e

# Files, without those of this boot, logs and root's own.
list() { find "$@" -printf '%p %y %m %U:%G %l\n' | sort; }
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /root -o -path /var/log/journal -o -path /var/cache \) -prune \
	-o -printf '%p %y %m %U:%G %l\n' | sort
list /var/lib/containerd /var/lib/kubelet /var/lib/etcd
list /run -mindepth 1 -maxdepth 1 -type d
find /etc /usr/local /opt -xdev -type f -exec sha256sum {} + | sort -k 2

awk '{print "mount", $5, $9, $10}' /proc/self/mountinfo | sort
sed 's/^/swap /' /proc/swaps
nft list ruleset | sed 's/^/nft /'
ip -o link | sed 's/^[0-9]*: /link /; s/[:@].*//' | sort
ip -o addr | awk '{print "address", $2, $3, $4}' | sort
ip route | sed 's/^/route /'
ip -6 route | sed 's/^/route /; s/ expires.*//' | sort
# One program for all of them: there are more than a thousand.
find /proc/sys/kernel /proc/sys/vm /proc/sys/net -type f -perm -u=rw \
	! -path '*/net/ipv[46]/neigh/*' ! -path '*random*' ! -path '*/vm/drop_caches' ! -path '*/vm/compact_memory' \
	! -path '*/kernel/ns_last_pid' ! -path '*/kernel/sched*' ! -path '*stable_secret' ! -path '*hung_task_warnings' ! -path '*/route/flush' \
	-exec grep -sH '' {} + | sort
systemctl list-unit-files --no-legend --no-pager --type=service,swap,mount,socket,timer | sed 's/^/unit /' | sort
systemctl list-units --no-legend --no-pager --plain --state=active --type=service,swap | awk '{print "active", $1}' | sort
