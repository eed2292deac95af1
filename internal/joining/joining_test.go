// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestDiscoveryRefuses(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	tests := []struct {
		name   string
		objs   []cluster.Object
		before func(t *testing.T, s *stage)
		want   string // the error, empty for none
	}{
		{name: "name of a node that is Ready", objs: []cluster.Object{node("worker-1", corev1.ConditionTrue)},
			want: `node "worker-1" | Ready | another name`},
		{name: "name of a node that is not Ready", objs: []cluster.Object{node("worker-1", corev1.ConditionFalse)}},
		{name: "this node", objs: []cluster.Object{node("worker-1", corev1.ConditionTrue)},
			before: func(t *testing.T, s *stage) { s.bootstrapped(t, s.ca, time.Now().Add(time.Hour)) }},
		{name: "this node, whose certificate has just expired", objs: []cluster.Object{node("worker-1", corev1.ConditionTrue)},
			before: func(t *testing.T, s *stage) { s.bootstrapped(t, s.ca, time.Now().Add(-time.Second)) }},
		{name: "configuration with a hostile path", objs: []cluster.Object{fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+"certificatesDir: /etc/kubernetes/../../root\n")},
			want: "ConfigMap kube-system/kubeadm-config:4: certificatesDir: "},
		{name: "configuration with a field of a wrong type", objs: []cluster.Object{fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+"clusterName: 1\n")},
			want: "ConfigMap kube-system/kubeadm-config:4: clusterName: | string"},
		{name: "a version that nodes cannot join", objs: []cluster.Object{fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", strings.Replace(fixture.ClusterConfiguration, "v1.37.2", "v1.30.14", 1))},
			want: `ConfigMap kube-system/kubeadm-config:3: kubernetesVersion: "v1.30.14"`},
		{name: "configuration of another kind", objs: []cluster.Object{fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.KubeletConfiguration)},
			want: "ConfigMap kube-system/kubeadm-config:2: kind: | ClusterConfiguration"},
		{name: "no configuration", objs: []cluster.Object{fixture.ConfigMap("kubeadm-config", "x", "")},
			want: "ConfigMap kube-system/kubeadm-config | ClusterConfiguration"},
		{name: "no kubelet configuration", objs: []cluster.Object{fixture.ConfigMap("kubelet-config", "x", "")},
			want: "ConfigMap kube-system/kubelet-config | key | --config"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.objs...)
			if tt.before != nil {
				tt.before(t, s)
			}
			_, err := s.join(t, byFile)
			fact.Error(t, err, fact.Of(tt.want)...)
			if _, err := os.Stat(filepath.Join(s.host.Root, "etc/kubernetes/pki")); err == nil {
				t.Error("something was written")
			}
		})
	}
}

// unauthorized answers 401 until it knows the token.
type unauthorized struct {
	cluster.Cluster
	known func() bool
}

func (u unauthorized) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if !u.known() {
		return false, apierrors.NewUnauthorized("Unauthorized")
	}
	return u.Cluster.Get(ctx, obj)
}

// TestNewTokenIsAwaited: an API server learns of a new token a moment later. The error names the credentials that it doesn't accept.
func TestNewTokenIsAwaited(t *testing.T) {
	const slow = 20 * time.Second
	for _, tt := range []struct {
		name  string
		after time.Duration
		token string
		own   string // the user of this host's kubelet.conf, if it has joined before
		want  string
		fix   string // in the remedy
	}{
		{"new", time.Second, fixture.Token, "", "", ""},
		{"new on a slow host", slow, fixture.Token, "", "", ""},
		{"unknown", time.Hour, fixture.Token, "", "API server | ID abcdef | expired", "token create"},
		{"other credentials", time.Hour, "", "", "node's credentials", "discovery file"},
		{"a certificate of its own", time.Hour, fixture.Token, "client-certificate: /pki/own.pem", "/etc/kubernetes/kubelet.conf | /pki/own.pem", "/pki/own.pem"},
		{"an embedded one", time.Hour, fixture.Token, "client-certificate-data: eA==", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet.conf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			synctest.Test(t, func(t *testing.T) {
				started, limit, longest := time.Now(), 5*time.Minute, 4*time.Second
				if tt.after == slow {
					limit, longest = 45*time.Minute, 28*time.Second
				}
				self := &config.JoinConfiguration{Timeouts: &config.Timeouts{Discovery: &metav1.Duration{Duration: limit}}}
				self.Discovery.TLSBootstrapToken = tt.token
				d := &Discovery{Host: s.host, UI: s.ui}
				join := &config.Join{Rejoins: tt.own != "", Kubeconfig: config.NewSecret(fixture.Kubeconfig(s.ca, tt.own))}
				_, err := d.stored(t.Context(), unauthorized{s.api, func() bool { return time.Since(started) >= tt.after }}, join, self)
				if got := message(err); strings.Contains(got, fixture.Token) || tt.own != "" && strings.Contains(got, "abcdef") {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				fact.In(t, fault.Remedy(err), fact.Of(tt.fix)...)
				fact.Error(t, err, fact.Of(tt.want)...)
				if waited := time.Since(started); waited > longest {
					t.Errorf("waited %s", waited)
				}
			})
		})
	}
}
