// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/manifests"
)

// TestEtcdEndpoints finds the members by this host's Pod and by the API.
func TestEtcdEndpoints(t *testing.T) {
	s := newPlaneStage(t, storedPlane)
	if err := s.discoverPlane(t, someKey); err != nil {
		t.Fatal(err)
	}
	api := podAPI{s.api(), []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{manifests.EtcdURLsAnnotation: "https://192.0.2.11:2379"}}}}, nil}
	ask := func(api podAPI) []string {
		urls, err := etcdmember.Endpoints(s.host, api, s.Config, s.UI)(t.Context())
		if err != nil {
			return []string{err.Error()}
		}
		return urls
	}
	down := podAPI{s.api(), nil, errors.New("connection refused")}
	for name, got := range map[string][]string{
		"https://192.0.2.11:2379": ask(api), "connection refused": ask(down),
		"the cluster has no etcd Pod on its control planes; is its etcd external?": ask(podAPI{s.api(), nil, nil}),
	} {
		if !slices.Equal(got, []string{name}) {
			t.Errorf("%v, want %s", got, name)
		}
	}
	s.play(t, joinPlane()...)
	if got := ask(down); !slices.Equal(got, []string{"https://192.0.2.11:2379", "https://192.0.2.12:2379"}) {
		t.Errorf("with this host's Pod: %v", got)
	}
}

// TestEtcdEndpointsOfOddPods leaves out what no etcd of a control plane serves,
// and says so once.
func TestEtcdEndpointsOfOddPods(t *testing.T) {
	s := newPlaneStage(t, storedPlane)
	if err := s.discoverPlane(t, someKey); err != nil {
		t.Fatal(err)
	}
	pod := func(name, urls string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Annotations: map[string]string{manifests.EtcdURLsAnnotation: urls}}}
	}
	odd := []corev1.Pod{pod("etcd-a", "http://192.0.2.11:2379"), pod("etcd-b", "not a URL"), pod("etcd-c", "")}
	const first = `annotation kubeadm.kubernetes.io/etcd.advertise-client-urls of Pod kube-system/etcd-a: "http://192.0.2.11:2379" is not a client URL`
	find := etcdmember.Endpoints(s.host, podAPI{s.api(), append(odd, pod("etcd-d", "https://192.0.2.14:2379, https://192.0.2.15:2379")), nil}, s.Config, s.UI)
	for range 2 {
		if urls, err := find(t.Context()); err != nil || !slices.Equal(urls, []string{"https://192.0.2.14:2379", "https://192.0.2.15:2379"}) {
			t.Errorf("%v, %v", urls, err)
		}
	}
	said := s.said.String()
	for _, warning := range []string{first, `Pod kube-system/etcd-b: "not a URL"`} {
		if strings.Count(said, warning) != 1 {
			t.Errorf("not said once: %s\n%s", warning, said)
		}
	}
	if _, err := etcdmember.Endpoints(s.host, podAPI{s.api(), odd, nil}, s.Config, s.UI)(t.Context()); !strings.Contains(message(err), first) {
		t.Errorf("without another: %v", err)
	}
}

// TestEtcdEndpointsOfAHangingAPI goes on with those that this host knows, in time
// for them to be asked.
func TestEtcdEndpointsOfAHangingAPI(t *testing.T) {
	s := preparedPlane(t)
	s.startedBefore(t, ".")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), etcd.HealthTime)
		defer cancel()
		started := time.Now()
		urls, err := etcdmember.Endpoints(s.host, hangingAPI{s.api()}, s.Config, s.UI)(ctx)
		if err != nil || !slices.Contains(urls, "https://192.0.2.12:2379") || time.Since(started) > etcd.HealthTime/2 {
			t.Errorf("%v, %v after %s", urls, err, time.Since(started))
		}
	})
}

// hangingAPI never answers.
type hangingAPI struct{ *cluster.Plan }

func (hangingAPI) Pods(ctx context.Context, _, _ string) ([]corev1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// podAPI has Pods.
type podAPI struct {
	*cluster.Plan
	pods []corev1.Pod
	err  error
}

func (a podAPI) Pods(context.Context, string, string) ([]corev1.Pod, error) { return a.pods, a.err }
