// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// endpointChange merges documents over those of a cluster with fields and annotations of its own.
func endpointChange(t *testing.T, fields string, notes map[string]string, documents string) (*Change, error) {
	t.Helper()
	api := cluster.NewPlan(func(cluster.Action) {}, nil)
	stored := fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+fields)
	stored.Annotations = notes
	if err := api.Ensure(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	c, _, err := ofControlPlane(api).Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(ofCluster + documents)})
	return c, err
}

// TestEndpoint: a former endpoint's name stays in the certificates until another change takes it out, and nodes learn of both.
func TestEndpoint(t *testing.T) {
	const old, next = "controlPlaneEndpoint: old.example.org:6443\n", "controlPlaneEndpoint: new.example.org:443\n"
	for name, test := range map[string]struct {
		fields               string
		notes                map[string]string
		documents            string
		sans, former, missed []string
	}{
		"the first endpoint": {documents: next, former: []string{"192.0.2.11:6443"}},
		"another":            {fields: old, documents: next, sans: []string{"old.example.org"}, former: []string{"old.example.org:6443"}},
		"another port":       {fields: old, documents: "controlPlaneEndpoint: old.example.org:443\n", former: []string{"old.example.org:6443"}},
		"another, with a list of names": {
			fields: old + "apiServer: {certSANs: [x]}\n", documents: next + "apiServer: {certSANs: [y]}\n",
			sans: []string{"y", "old.example.org"}, former: []string{"old.example.org:6443"},
		},
		"back": {
			fields: next + "apiServer: {certSANs: [old.example.org]}\n", notes: map[string]string{FormerEndpoints: "a:1,old.example.org:6443"}, documents: old,
			sans: []string{"old.example.org", "new.example.org"}, former: []string{"a:1", "new.example.org:443"},
		},
		"the former name is taken out": {
			fields: next + "apiServer: {certSANs: [x, old.example.org]}\n", notes: map[string]string{FormerEndpoints: "old.example.org:6443"},
			documents: "apiServer: {certSANs: [x]}\n", sans: []string{"x"}, former: []string{"old.example.org:6443"}, missed: []string{"old.example.org"},
		},
		"a name comes back": {
			notes: map[string]string{FormerEndpoints: "x:1,y:1", removedNames: "x,y"}, documents: "apiServer: {certSANs: [y]}\n",
			sans: []string{"y"}, former: []string{"x:1", "y:1"}, missed: []string{"x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := endpointChange(t, test.fields, test.notes, test.documents)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Node.Cluster.APIServer.CertSANs; !slices.Equal(got, test.sans) {
				t.Errorf("names %q, want %q", got, test.sans)
			}
			if !slices.Equal(c.Former, test.former) || !slices.Equal(c.Removed, test.missed) {
				t.Errorf("former endpoints %q and removed names %q, want %q and %q", c.Former, c.Removed, test.former, test.missed)
			}
		})
	}
	_, err := endpointChange(t, old, nil, "controlPlaneEndpoint: null\n")
	fact.Error(t, err, "change.yaml:3:", "controlPlaneEndpoint")
}
