// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

func TestMarkControlPlane(t *testing.T) {
	labels := map[string]string{
		"node-role.kubernetes.io/control-plane":                   "",
		"node.kubernetes.io/exclude-from-external-load-balancers": "",
	}
	own := corev1.Taint{Key: "own", Value: "v", Effect: corev1.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		taints string
		want   []corev1.Taint
	}{
		"default": {"", []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}},
		"none":    {", taints: []", nil},
		"own":     {", taints: [{key: own, value: v, effect: NoExecute}]", []corev1.Taint{own}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: 192.0.2.11}\n"+
				"nodeRegistration: {name: cp-1"+test.taints+"}\n"+fixture.ClusterDocument)
			api := &phasetest.Marked{Plan: s.API}
			s.Cluster = api
			s.Play(t, markControlPlane())
			if diff := cmp.Diff(cluster.Mark{Labels: labels, Taints: test.want}, api.Mark, cmp.Transformer("len", noEmpty)); diff != "" || api.Name != "cp-1" {
				t.Errorf("%s marked (-want +got):\n%s", api.Name, diff)
			}
			if api.Deadline <= 0 || api.Deadline > s.Config.Timeouts.KubeletHealthCheck {
				t.Errorf("the wait lasts %s", api.Deadline)
			}
		})
	}
}

func noEmpty(taints []corev1.Taint) []string {
	var out []string
	for _, taint := range taints {
		out = append(out, taint.ToString())
	}
	return out
}

func TestMarkControlPlaneFails(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Cluster = &phasetest.Marked{Plan: s.API, Err: errors.New("Node cp-1 is not registered")}
	err := step.Run(t.Context(), s.Env, []step.Phase{markControlPlane()}, step.Options{})
	if want := "phase mark-control-plane: Node cp-1 is not registered"; phasetest.Message(err) != want {
		t.Errorf("error %q, want %q", phasetest.Message(err), want)
	}
}

// TestMarkControlPlaneAllowsKubelets: a joining node's certificate needs a binding that the cluster may lack. Somebody else's stays,
// and init makes it in another phase.
func TestMarkControlPlaneAllowsKubelets(t *testing.T) {
	edited := manifests.KubeletAPIAdmin().(*rbacv1.ClusterRoleBinding)
	edited.Subjects = []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "own"}}
	forbidden := apierrors.NewForbidden(rbacv1.Resource("clusterrolebindings"), edited.Name, errors.New("no right"))
	for name, test := range map[string]struct {
		init bool
		live *rbacv1.ClusterRoleBinding
		err  error
		want string // the subject
	}{
		"missing":        {want: "kube-apiserver-kubelet-client"},
		"edited":         {live: edited, want: "own"},
		"of init":        {init: true},
		"not to be read": {err: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			s := preparedPlane(t)
			if test.init {
				s.Config = s.Config.With(func(n *config.Node) { n.Join = nil })
			}
			if test.live != nil {
				s.store(t, test.live)
			}
			s.Cluster = &unread{s.api(), test.err}
			for range 2 { // the second run finds the binding
				err := step.Run(t.Context(), s.Env, []step.Phase{markControlPlane()}, step.Options{})
				if test.err == nil {
					phasetest.Fatal(t, err)
				} else {
					fact.Error(t, err, edited.Name, "no right")
				}
			}
			got, subject := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: edited.Name}}, ""
			if found, _ := s.api().Get(t.Context(), got); found {
				subject = got.Subjects[0].Name
			}
			if subject != test.want {
				t.Errorf("it allows %q, want %q", subject, test.want)
			}
		})
	}
}

// unread is an API that doesn't compare objects if it has an error.
type unread struct {
	*cluster.Plan
	err error
}

func (u *unread) Compare(ctx context.Context, obj cluster.Object) (cluster.Difference, error) {
	if u.err != nil {
		return cluster.Difference{}, u.err
	}
	return u.Plan.Compare(ctx, obj)
}

// unregistered is an API whose Node appears once the kubelet was restarted.
type unregistered struct {
	*cluster.Plan
	host *teststage.Host
}

func (u *unregistered) MarkNode(ctx context.Context, _ string, _ cluster.Mark) error {
	if slices.Contains(u.host.Jobs, "restart kubelet.service") {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestMarkControlPlaneWhoseNodeWasDeleted: a running kubelet doesn't register its Node again, a restarted one does. In a first
// init it's only slow.
func TestMarkControlPlaneWhoseNodeWasDeleted(t *testing.T) {
	for name, want := range map[string]int{"deleted": 1, "only slow to be marked": 0, "first init": 0} {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		s.Cluster = &unregistered{s.API, s.FakeHost}
		s.Rerun = name != "first init"
		if name == "only slow to be marked" {
			phasetest.Fatal(t, s.API.Ensure(t.Context(), cluster.NewNode("cp-1")))
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := markRegistered(ctx, s.Env, cluster.Mark{})
			if len(s.FakeHost.Jobs) != want || (err == nil) != (want == 1) {
				t.Errorf("%s: %v, jobs %v", name, err, s.FakeHost.Jobs)
			}
		})
	}
}
