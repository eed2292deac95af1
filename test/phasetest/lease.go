// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
)

func (s *Stage) PurposeNow(t *testing.T) string {
	t.Helper()
	lease := TurnLease()
	_, err := s.API.Get(t.Context(), lease)
	Fatal(t, err)
	return lease.Annotations["slipway/purpose"]
}

// TurnLease is the Lease of the control plane whose components are being restarted, by the name all releases use.
func TurnLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-upgrade", Namespace: metav1.NamespaceSystem},
	}
}

// Holds makes a node the holder of the Lease, last renewed the given time ago.
func (s *Stage) Holds(t *testing.T, name string, ago time.Duration) {
	t.Helper()
	s.HoldsFor(t, name, "upgrade", ago)
}

func (s *Stage) HoldsFor(t *testing.T, name, purpose string, ago time.Duration) {
	t.Helper()
	lease, renewed := TurnLease(), metav1.NewMicroTime(s.Host.Now().Add(-ago))
	take := func() (bool, error) {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &name, &renewed
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, "slipway/purpose", purpose)
		return true, nil
	}
	found, err := s.API.Update(t.Context(), lease, take)
	if err == nil && !found {
		_, _ = take()
		err = s.API.Ensure(t.Context(), lease)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *Stage) Holder(t *testing.T) string {
	t.Helper()
	lease := TurnLease()
	if _, err := s.API.Get(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// SecondControlPlane is the environment of cp-2 in the cluster in which s is cp-1.
func SecondControlPlane(t *testing.T, s *Stage) *step.Env {
	t.Helper()
	for _, other := range []string{"cp-1", "cp-2"} {
		if err := s.API.Ensure(t.Context(), cluster.NewNode(other)); err != nil {
			t.Fatal(err)
		}
	}
	second, other := *s.Env, *s.Config
	other.Name, second.Config = "cp-2", &other
	return &second
}
