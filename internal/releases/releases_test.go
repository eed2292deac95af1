// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package releases

import (
	"slices"
	"testing"
)

// TestLeaving: kinds that 1.36 stopped serving matter only to clusters from before it.
func TestLeaving(t *testing.T) {
	const before36, before37 = "scheduling.k8s.io/v1alpha1 Workload", "networking.k8s.io/v1beta1 ServiceCIDR"
	for minor, want := range map[string][2]bool{"1.33": {true, true}, "1.35": {true, true}, "1.36": {false, true}, "1.37": {false, false}} {
		r, _ := Of(minor)
		list := r.Leaving()
		if got := [2]bool{slices.Contains(list, before36), slices.Contains(list, before37)}; got != want {
			t.Errorf("from %s on: %q", minor, list)
		}
		if slices.Contains(list, "apps/v1 Deployment") || !slices.IsSorted(list) {
			t.Errorf("from %s on: %q", minor, list)
		}
	}
}

// TestEtcdFlags: etcd's flags have columns of their own, and aren't flags of a program of Kubernetes.
func TestEtcdFlags(t *testing.T) {
	for minor, want := range map[string][2]bool{"3.6": {true, true}, "3.7": {true, false}} {
		r, known := OfEtcd(minor)
		if got := [2]bool{r.HasFlag("data-dir"), r.HasFlag("experimental-initial-corrupt-check")}; !known || got != want {
			t.Errorf("etcd %s: %v, want %v", minor, got, want)
		}
	}
	if r, known := OfEtcd("3.8"); known || r.HasFlag("data-dir") {
		t.Error("there is a table of etcd 3.8")
	}
	if r, _ := Of("1.36"); r.HasFlag(APIServer, "data-dir") {
		t.Error("the API server has a flag of etcd's")
	}
}

func TestVersionsCompared(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"1.36", "v1.37.2"}: true, {"v1.37.1", "v1.37.2"}: false, {"v1.37.2", "1.36"}: false, {"1.9", "1.10"}: true, {"", "1.36"}: false, {"1.36", "x"}: false,
	} {
		if got := Less(pair[0], pair[1]); got != want {
			t.Errorf("%q: %t", pair, got)
		}
	}
	oldest, newest := Span([]string{"", "v1.37.2", "v1.36.4-rc.1", "v1.36.4", "latest"})
	if oldest.String() != "1.36.4-rc.1" || newest.String() != "1.37.2" {
		t.Errorf("from %s to %s", oldest, newest)
	}
	if oldest, newest = Span([]string{"x"}); oldest != nil || newest != nil {
		t.Errorf("from %s to %s", oldest, newest)
	}
}
