// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestPinnedEtcd: no change gives an etcd 3.5 the flags of 3.6; a change of the API server alone leaves it as it is.
func TestPinnedEtcd(t *testing.T) {
	const etcdManifest = "/etc/kubernetes/manifests/etcd.yaml"
	s := live(t)
	cm := node.ConfigMap("kubeadm-config")
	_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
		const dir = "dataDir: /var/lib/etcd"
		cm.Data["ClusterConfiguration"] = strings.Replace(cm.Data["ClusterConfiguration"], dir, dir+"\n    imageTag: 3.5.24-0", 1)
		return true, nil
	})
	phasetest.Fatal(t, err)
	s.EditPod(t, manifests.EtcdName, manifests.ImageOf([]byte(s.Get(t, etcdManifest))), "registry.k8s.io/etcd:3.5.24-0")
	s.EditPod(t, manifests.EtcdName, "--feature-gates=InitialCorruptCheck=true", "--experimental-initial-corrupt-check=true")
	s.EditPod(t, manifests.EtcdName, "--watch-progress-notify-interval=5s", "--experimental-watch-progress-notify-interval=5s")
	before := files(t, s)
	fact.Error(t, run(t, s), "EtcdImageTag", "3.5.24-0", "`slipway upgrade apply`")
	fact.Error(t, toStored(t, s), "EtcdImageTag", "3.5.24-0")
	if diff := cmp.Diff(before, files(t, s)); diff != "" || state(t, s) != "" {
		t.Errorf("files:\n%s", diff)
	}
	s.Put(t, config.EncryptionFile, "kind: EncryptionConfiguration\n")
	c, _, err := loaderOn(s).Encryption(t.Context())
	phasetest.Fatal(t, err)
	s.Config = c.Node
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, New(c, "/usr/bin/slipway").APIServerPhases(), step.Options{}))
	fact.In(t, s.Get(t, apiServer), manifests.EncryptionFlag)
	if s.Get(t, etcdManifest) != before[etcdManifest] {
		t.Error("etcd has changed, too")
	}
}

// TestPatchedImages: patches from an earlier upgrade don't take a component back to their version, whether or not preflight runs.
func TestPatchedImages(t *testing.T) {
	const image = "example.com/kube-scheduler:v1.36.4"
	s := live(t)
	changeElsewhere(t, s)
	s.Put(t, "/patches/kube-scheduler.yaml", "spec: {containers: [{name: kube-scheduler, image: '"+image+"'}]}\n")
	before := files(t, s)
	c, _, err := loaderOn(s).Stored(t.Context())
	phasetest.Fatal(t, err)
	for _, without := range [][]string{nil, {"preflight"}} {
		s.Config = c.Node.With(func(n *config.Node) { n.PatchesDir, n.IgnorePreflightErrors = "/patches", []string{"all"} })
		phases := slices.DeleteFunc(New(c, "/usr/bin/slipway").NodePhases(), func(p step.Phase) bool { return slices.Contains(without, p.Name) })
		err := step.Run(t.Context(), s.Env, phases, step.Options{})
		fact.Error(t, err, "kube-scheduler.yaml", image, "v1.37.2")
		if named := strings.Contains(err.Error(), "PatchedImages"); named != (without == nil) {
			t.Errorf("without %q: %v", without, err)
		}
		if diff := cmp.Diff(before, files(t, s)); diff != "" {
			t.Errorf("files:\n%s", diff)
		}
	}
}

// TestNewerCoreDNS: a change of CoreDNS's repository alone doesn't pretend to work if somebody has installed a newer version.
func TestNewerCoreDNS(t *testing.T) {
	const documents = ofCluster + "dns: {imageRepository: example.org/next"
	s := live(t)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}}
	image := func() *string { return &d.Spec.Template.Spec.Containers[0].Image }
	_, err := s.API.Update(t.Context(), d, func() (bool, error) {
		*image() = "registry.k8s.io/coredns/coredns:v1.99.0"
		return true, nil
	})
	phasetest.Fatal(t, err)
	before, had := files(t, s), configuration(t, s)
	err = step.Run(t.Context(), s.Env, changeTo(t, s, documents+"}\n").Phases(), step.Options{})
	fact.Error(t, err, coreDNSCheck, "1.99.0", "dns.imageTag", "v1.99.0")
	if diff := cmp.Diff(before, files(t, s)) + cmp.Diff(had, configuration(t, s)); diff != "" || state(t, s) != "" {
		t.Errorf("files and configuration:\n%s", diff)
	}
	withControllers(t, s)
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, changeTo(t, s, documents+", imageTag: v1.99.0}\n").Phases(), step.Options{}))
	_, err = s.API.Get(t.Context(), d)
	phasetest.Fatal(t, err)
	if got := *image(); got != "example.org/next/coredns:v1.99.0" {
		t.Errorf("CoreDNS has the image %s", got)
	}
}
