// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// TestDataDirIsEtcdsOwn: neither a cluster's ConfigMap nor a typo may make Slipway lock or empty a system directory.
func TestDataDirIsEtcdsOwn(t *testing.T) {
	for dir, allowed := range map[string]bool{
		"/var/lib/etcd": true, "/data": true, "/etcd": true, "/mnt/disk/etcd": true, "/opt/etcd": true, "/srv/etcd": true, "/var/lib/other-etcd": true,
		"/": false, "/etc": false, "/etc/": false, "/var/lib": false, "/var/lib/kubelet": false, "/usr": false, "/usr/local/etcd": false,
		"/proc/1": false, "/etc/kubernetes": false, "/tmp": false, "/lib/x": false,
	} {
		stored := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\netcd: {local: {dataDir: " + dir + "}}\n"
		_, _, err := LoadCluster([]byte(stored), nil, nil, nil, Options{Facts: HostFacts{Hostname: "a"}})
		refused := err != nil && strings.Contains(err.Error(), "etcd.local.dataDir: \""+dir+"\" ")
		if refused == allowed {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
