// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// PlaneToUpgrade is a control plane of v1.36.4, as Slipway made it, to be upgraded to v1.37.2.
func PlaneToUpgrade(t *testing.T) *Stage {
	t.Helper()
	return PlaneFrom(t, "v1.36.4")
}

// PlaneFrom is a control plane of another version. extra are flags of its controller manager.
func PlaneFrom(t *testing.T, from string, extra ...config.Arg) *Stage {
	t.Helper()
	s := NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.Cluster.ControllerManager.ExtraArgs = append(s.Config.Cluster.ControllerManager.ExtraArgs, extra...)
	s.Config.Upgrade = &config.Upgrade{From: from, Version: "v1.37.2", First: true, Etcd: true, CertificateRenewal: true}
	s.FakeHost.Has.Time = time.Now()
	made := s.Config.With(func(n *config.Node) { n.Cluster.KubernetesVersion = from })
	var view manifests.HostView
	for _, pod := range []*corev1.Pod{
		manifests.Etcd(made, view, nil), manifests.APIServer(made, view), manifests.ControllerManager(made, view), manifests.Scheduler(made, view),
	} {
		data, err := manifests.Encode(pod)
		Fatal(t, err)
		s.Put(t, "/etc/kubernetes/manifests/"+pod.Name+".yaml", string(data))
	}
	s.Config.Cluster.KubernetesVersion = "v1.37.2"
	return s
}
