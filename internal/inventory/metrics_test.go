// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

const deprecated = "# TYPE apiserver_requested_deprecated_apis gauge\n" +
	`apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="1.37",resource="ipaddresses",subresource="",version="v1beta1"} 1` + "\n"

// TestMetricsOfServers: each API server counts on its own. This host's, or the user's choice, is asked, and the others are named.
func TestMetricsOfServers(t *testing.T) {
	const requested, others = "api-requested 1.37 ", "not-checked kube-apiserver: metrics of others"
	for name, row := range map[string]struct {
		make func(*scene)
		want []string
	}{
		"one": {func(s *scene) { s.api.Answer("/metrics", deprecated) },
			[]string{requested + "kube-apiserver on cp-1: networking.k8s.io/v1beta1/ipaddresses"}},
		"several, this host's": {func(s *scene) {
			s.componentOn("cp-2", "kube-apiserver", "--profiling=false")
			s.own = fakeapi.New(nil)
			s.t.Cleanup(s.own.Close)
			s.own.Answer("/metrics", deprecated)
		}, []string{requested + "kube-apiserver on cp-1: networking.k8s.io/v1beta1/ipaddresses", others + "; cp-2"}},
		"several, elsewhere": {func(s *scene) {
			s.remote = true
			s.componentOn("cp-2", "kube-apiserver", "--profiling=false")
			s.api.Answer("/metrics", deprecated)
		}, []string{requested + "the API server that was asked: networking.k8s.io/v1beta1/ipaddresses", others + "; cp-1, cp-2"}},
		"a worker that says that it has one": {func(s *scene) { s.pod("w-1", "kube-apiserver", "--profiling=false") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "v1.36.4", "v1.37.2")
			row.make(s)
			found := s.findings()
			for _, want := range row.want {
				checkFound(t, found, want)
			}
			for _, f := range found {
				if len(row.want) == 0 && named(f) != always {
					t.Errorf("found %q", named(f))
				}
			}
		})
	}
}

// TestPodsOfWorkers: a worker's reports of a control plane's static Pods are ignored, and a worker's static Pod doesn't keep
// control planes from being upgraded.
func TestPodsOfWorkers(t *testing.T) {
	s := newScene(t, "v1.36.4", "v1.37.2")
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "etcd"} {
		s.pod("w-1", name, "--concurrent-service-syncs=2", "--feature-gates=Unknown=true", "--authentication-config=/etc/in-container/a.yaml")
	}
	s.put("/api/v1/namespaces/default/pods/dns-w-1", "v1", "Pod", object{"metadata": object{"annotations": object{"kubernetes.io/config.mirror": "x"}},
		"spec": object{"nodeName": "w-1", "volumes": []any{object{"name": "v", "csi": object{"driver": "d"}}}}})
	for _, f := range s.findings() {
		if f.Severity == fault.Error || !slices.Contains([]string{always, "static-pod-api-reference 1.37 static Pod default/dns-w-1 on w-1: CSIDriver"}, named(f)) {
			t.Errorf("found %q, fatal: %t", named(f), f.Severity == fault.Error)
		}
	}
}
