// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const dnsRepository = "registry.k8s.io/coredns/coredns:"

// setImage is `kubectl set image` for an add-on.
func setImage(t *testing.T, s *phasetest.Stage, addon, image string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: addon}
	var err error
	if addon == "coredns" {
		d := &appsv1.Deployment{ObjectMeta: meta}
		_, err = s.API.Update(t.Context(), d, func() (bool, error) { d.Spec.Template.Spec.Containers[0].Image = image; return true, nil })
	} else {
		d := &appsv1.DaemonSet{ObjectMeta: meta}
		_, err = s.API.Update(t.Context(), d, func() (bool, error) { d.Spec.Template.Spec.Containers[0].Image = image; return true, nil })
	}
	phasetest.Fatal(t, err)
	s.Done = nil
}

// TestOtherAddons: a change leaves an add-on alone that it doesn't concern, and an image that it doesn't change.
func TestOtherAddons(t *testing.T) {
	const proxy, dns = "registry.k8s.io/kube-proxy:v1.37.9", dnsRepository + "v1.14.4"
	s := live(t)
	setImage(t, s, "kube-proxy", proxy)
	setImage(t, s, "coredns", dns)
	api := withControllers(t, s)
	check := func() {
		t.Helper()
		for name, want := range map[string]string{"kube-proxy": proxy, "coredns": dns} {
			if got := api.template(name).Spec.Containers[0].Image; got != want {
				t.Errorf("%s has the image %s", name, got)
			}
		}
	}
	for _, documents := range []string{everything, everything, ofKubeProxy} { // the second changes nothing
		phasetest.Fatal(t, step.Run(t.Context(), s.Env, changeTo(t, s, documents).Phases(), step.Options{}))
		check()
	}
	fact.In(t, stored(t, s, "kube-proxy", "config.conf"), "127.0.0.1:10256")
	api = withControllers(t, s)
	phasetest.Fatal(t, takeBack(t, s))
	fact.NotIn(t, stored(t, s, "kube-proxy", "config.conf"), "127.0.0.1:10256")
	check()
	if got := state(t, s); got != trial.Completed {
		t.Errorf("the change is %q", got)
	}
}

type failingPods struct{ cluster.Cluster }

func (failingPods) Pods(context.Context, string, string) ([]corev1.Pod, error) {
	return nil, errors.New("etcdserver: request timed out")
}

// TestAddonsDuringUpgrade: while control planes have still to be upgraded, no change gives the add-ons the next version.
func TestAddonsDuringUpgrade(t *testing.T) {
	s := live(t)
	planes := &phasetest.Planes{Plan: s.API, Left: -1}
	planes.Server("cp-1", "registry.k8s.io/kube-apiserver:v1.37.2")
	planes.Server("cp-2", "registry.k8s.io/kube-apiserver:v1.36.4")
	for i := range planes.Known {
		planes.Known[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	s.Cluster = planes
	setImage(t, s, "kube-proxy", "registry.k8s.io/kube-proxy:v1.36.4")
	found := func(documents string) (severities string) {
		for _, f := range changeTo(t, s, documents).unfinishedUpgrade(t.Context(), s.Env) {
			severities += string(f.Severity)
		}
		return severities
	}
	if got := found(everything); got != "" {
		t.Errorf("a change of the control plane is refused: %s", got)
	}
	fact.Error(t, step.Run(t.Context(), s.Env, changeTo(t, s, ofAddons).Phases(), step.Options{}), upgradeCheck, "cp-2", "v1.36.4", "`slipway upgrade node`")
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.37.2":       "",
		"registry.k8s.io/kube-apiserver:v1.37.2-acme1": string(fault.Warning),
		"example.com/kube-apiserver@sha256:0123":       string(fault.Warning),
	} {
		planes.Running[1].Spec.Containers[0].Image = image
		if got := found(ofAddons); got != want {
			t.Errorf("with %s, a change of the add-ons has the finding %q, want %q", image, got, want)
		}
	}
	s.Cluster = &failingPods{s.Cluster}
	if got := found(ofAddons); got != string(fault.Error) {
		t.Errorf("without the list of control planes, it has the finding %q", got)
	}
}
