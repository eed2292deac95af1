// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// edit changes a text in a ConfigMap, or only gives it a label.
func edit(cm *corev1.ConfigMap, key string, labels bool) {
	if labels {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, "example.org/seen", "true")
		return
	}
	cm.Data[key] = strings.TrimSuffix(cm.Data[key], "\n") + "\n# edited\n"
}

// TestChangedMeanwhile: a run neither changes this node nor overwrites a configuration that somebody has changed since it was loaded.
func TestChangedMeanwhile(t *testing.T) {
	for name, row := range map[string]struct {
		scenario       phasetest.Scenario
		command, after string // the phase that the edit follows; empty for the prompt
		workflow       func() []step.Phase
		cm, key        string
		labels         bool
	}{
		"kubeadm-config at the prompt":         {applyScenario, "apply", "", Apply, "kubeadm-config", "ClusterConfiguration", false},
		"kubelet-config at the prompt":         {applyScenario, "apply", "", Apply, "kubelet-config", "kubelet", false},
		"kubeadm-config during the upgrade":    {applyScenario, "apply", controlPlanePhase, Apply, "kubeadm-config", "ClusterConfiguration", false},
		"only a label":                         {applyScenario, "apply", "", Apply, "kubeadm-config", "ClusterConfiguration", true},
		"another control plane's upgrade ends": {nodePlaneScenario, "node", "preflight", Node, "kubeadm-config", "ClusterConfiguration", false},
	} {
		t.Run(name, func(t *testing.T) {
			edited := ""
			meanwhile := step.Phase{Name: "meanwhile", Run: func(ctx context.Context, env *step.Env) error {
				cm := node.ConfigMap(row.cm)
				_, err := env.Cluster.Update(ctx, cm, func() (bool, error) {
					edit(cm, row.key, row.labels)
					edited = cm.Data[row.key]
					return true, nil
				})
				return err
			}}
			c := row.scenario
			c.Run = phasetest.RunUpgrade(row.command, func() []step.Phase {
				workflow := row.workflow()
				at := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == row.after })
				return slices.Insert(workflow, at+1, meanwhile)
			})
			s := phasetest.NewScene(t, c)
			defer s.Close()
			before := s.Stamps(t)
			_, err := s.Again(t.Context())
			if row.labels {
				phasetest.Fatal(t, err)
				return
			}
			fact.Error(t, err, "kube-system/"+row.cm)
			data, _ := s.API.Objects()["/api/v1/namespaces/kube-system/configmaps/"+row.cm]["data"].(map[string]any)
			if data[row.key] != edited {
				t.Errorf("stored %q", data[row.key])
			}
			const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
			if same := before[manifest] == s.Stamps(t)[manifest]; same != (row.after != controlPlanePhase) {
				t.Errorf("the static Pod is the same: %t", same)
			}
		})
	}
}

// racing is a cluster in which somebody edits the ConfigMap right before it's updated, and whose first answer is lost.
type racing struct {
	cluster.Cluster
	edit func(cm *corev1.ConfigMap)
}

func (r racing) Update(ctx context.Context, obj cluster.Object, change func() (bool, error)) (bool, error) {
	cm := obj.(*corev1.ConfigMap)
	if found, err := r.Cluster.Update(ctx, cm, func() (bool, error) { r.edit(cm); return true, nil }); err != nil || !found {
		return found, err
	}
	if found, err := r.Cluster.Update(ctx, obj, change); err != nil {
		return found, err
	}
	return r.Cluster.Update(ctx, obj, change)
}

// TestUploadRace: the upload overwrites no edit, however late. Labels and annotations stay, and a missing ConfigMap is created.
func TestUploadRace(t *testing.T) {
	const name, key, loaded = "kubeadm-config", "ClusterConfiguration", "kind: ClusterConfiguration\n"
	for what, row := range map[string]struct{ missing, labels bool }{
		"an edit": {}, "a label": {labels: true}, "missing": {missing: true},
	} {
		t.Run(what, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.Config.Upgrade.Stored = []config.StoredText{{ConfigMap: name, Key: key}}
			if !row.missing {
				s.Config.Upgrade.Stored[0].Text = loaded
				phasetest.Fatal(t, s.API.Ensure(t.Context(), fixture.ConfigMap(name, key, loaded)))
			}
			s.Cluster = racing{s.API, func(cm *corev1.ConfigMap) { edit(cm, key, row.labels) }}
			err := step.Run(t.Context(), s.Env, upgradeUploadConfig().Children[:1], step.Options{})
			cm := node.ConfigMap(name)
			_, failed := s.API.Get(t.Context(), cm)
			phasetest.Fatal(t, failed)
			if !row.labels && !row.missing {
				fact.Error(t, err, "kube-system/"+name)
				fact.In(t, cm.Data[key], "# edited")
				return
			}
			phasetest.Fatal(t, err)
			fact.In(t, cm.Data[key], "kubernetesVersion: v1.37.2")
			if seen := cm.Labels["example.org/seen"] != ""; seen != row.labels {
				t.Errorf("labels %v", cm.Labels)
			}
		})
	}
}
