// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// ofProxy changes kube-proxy's settings, and the kubelet's.
const ofProxy = ofKubelet + "maxPods: 55\n---\n" + ofKubeProxy

// TestLabelledMeanwhile: a label or an annotation that somebody adds before a step or during the trial doesn't keep the change from
// being stored.
func TestLabelledMeanwhile(t *testing.T) {
	annotate := func(t *testing.T, s *phasetest.Stage, text string) {
		for _, name := range []string{"kubelet-config", "kubeadm-config"} {
			cm := node.ConfigMap(name)
			_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
				metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "example.org/seen", text)
				return true, nil
			})
			phasetest.Fatal(t, err)
		}
	}
	t.Run("on trial", func(t *testing.T) {
		s, _, _ := killed(t, time.Minute)
		annotate(t, s, "true")
		workflow, err := Answer(s.Env, trial.Confirmed, false)
		phasetest.Fatal(t, err)
		s.Play(t, workflow...)
		isAfter(t, s)
	})
	t.Run("before each step", func(t *testing.T) {
		s := live(t)
		s.Cluster = annotated{s.API}
		var workflow []step.Phase
		for _, p := range change(t, s).Phases() {
			workflow = append(workflow, step.Phase{Name: "before-" + p.Name, Run: func(context.Context, *step.Env) error {
				annotate(t, s, p.Name)
				return nil
			}}, p)
		}
		s.Play(t, workflow...)
		isAfter(t, s)
	})
}

// annotated is an API whose ConfigMaps have another resourceVersion with each annotation.
type annotated struct{ cluster.Cluster }

func (a annotated) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	found, err := a.Cluster.Get(ctx, obj)
	obj.SetResourceVersion(fmt.Sprint(obj.GetAnnotations()))
	return found, err
}

// TestKubeProxyMeanwhile: kube-proxy's settings stay as somebody else has written them during the trial.
func TestKubeProxyMeanwhile(t *testing.T) {
	const theirs = "configSyncPeriod: 3m0s"
	theyChange := func(t *testing.T, s *phasetest.Stage) {
		cm := node.ConfigMap("kube-proxy")
		_, err := s.API.Update(t.Context(), cm, func() (bool, error) {
			cm.Data["config.conf"] = strings.Replace(cm.Data["config.conf"], "configSyncPeriod: 0s", theirs, 1)
			return true, nil
		})
		phasetest.Fatal(t, err)
	}
	t.Run("before they change", func(t *testing.T) {
		s := live(t)
		were, had := files(t, s), configuration(t, s)
		r := changeTo(t, s, ofProxy)
		workflow := r.Phases()
		i := slices.IndexFunc(workflow, func(p step.Phase) bool { return p.Name == "addon" })
		play := workflow[i].Children[1].Run
		workflow[i].Children[1].Run = func(ctx context.Context, env *step.Env) error {
			theyChange(t, s)
			r.Stored[manifests.KubeProxyConfigMap] = "another"
			return play(ctx, env)
		}
		fact.Error(t, step.Run(t.Context(), s.Env, workflow, step.Options{}), "kube-system/kube-proxy")
		isBefore(t, s, were, had)
		fact.In(t, stored(t, s, "kube-proxy", "config.conf"), theirs)
	})
	t.Run("before they go back", func(t *testing.T) {
		s, were, had := killedAt(t, time.Nanosecond, ofProxy)
		fact.In(t, stored(t, s, "kube-proxy", "config.conf"), "127.0.0.1:10256")
		theyChange(t, s)
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		fact.In(t, stored(t, s, "kube-proxy", "config.conf"), "127.0.0.1:10256", theirs)
	})
	t.Run("not at all", func(t *testing.T) {
		s, were, had := killedAt(t, time.Nanosecond, ofProxy)
		s.Play(t, Watch()...)
		isBefore(t, s, were, had)
		fact.NotIn(t, stored(t, s, "kube-proxy", "config.conf"), "127.0.0.1:10256")
	})
}

// TestNodeKeepsEdits: edits on another control plane from before one or two changes are told from them, and stop the run there.
func TestNodeKeepsEdits(t *testing.T) {
	for i, edited := range []bool{false, true, false, true} {
		s := live(t)
		earlier := s.Get(t, apiServer)
		phasetest.Fatal(t, run(t, s))
		if i >= 2 {
			again := changeTo(t, s, ofCluster+"scheduler: {extraArgs: [{name: v, value: \"3\"}]}\n")
			phasetest.Fatal(t, step.Run(t.Context(), s.Env, again.Phases(), step.Options{}))
		}
		if edited {
			earlier = strings.Replace(earlier, "    - --secure-port", "    - --max-requests-inflight=1600\n    - --secure-port", 1)
		}
		phasetest.Fatal(t, os.Remove(s.Root+apiServer))
		s.Put(t, apiServer, earlier)
		at := time.Now().Add(-time.Minute)
		phasetest.Fatal(t, os.Chtimes(s.Root+apiServer, at, at))
		s.Said.Reset()
		if err := toStored(t, s); edited {
			fact.Error(t, err, "StaticPodEdits", "max-requests-inflight=1600", "kube-apiserver0+")
			fact.NotIn(t, err.Error(), "profiling")
		} else if phasetest.Fatal(t, err); strings.Contains(s.Said.String(), "StaticPodEdits") {
			t.Errorf("the change is taken for an edit:\n%s", s.Said.String())
		}
	}
}

// TestEncryptionElsewhere: once a control plane has stored the flags for encryption, the next gets them in the same way, and no other
// change that it hasn't got yet.
func TestEncryptionElsewhere(t *testing.T) {
	s := live(t)
	s.Put(t, config.EncryptionFile, "kind: EncryptionConfiguration\n")
	restarts := func() []reconfiguring.Field {
		c, _, err := loaderOn(s).Encryption(t.Context())
		phasetest.Fatal(t, err)
		s.Config = c.Node
		phasetest.Fatal(t, step.Run(t.Context(), s.Env, New(c, "/usr/bin/slipway").APIServerPhases(), step.Options{}))
		fact.In(t, s.Get(t, apiServer), manifests.EncryptionFlag)
		fact.NotIn(t, s.Said.String(), "`slipway reconfigure node`")
		return c.Fields
	}
	earlier := s.Get(t, apiServer)
	if fields := restarts(); len(fields) == 0 {
		t.Error("nothing was stored")
	}
	phasetest.Fatal(t, os.Remove(s.Root+apiServer))
	s.Put(t, apiServer, earlier)
	at := time.Now().Add(-time.Minute)
	phasetest.Fatal(t, os.Chtimes(s.Root+apiServer, at, at))
	storedElsewhere(t, s.API, "kubeadm-config", "ClusterConfiguration", "scheduler: {extraArgs: [{name: profiling, value: \"false\"}]}\n")
	storedElsewhere(t, s.API, "kubelet-config", "kubelet", "maxPods: 55\n")
	others := []string{"/etc/kubernetes/manifests/kube-scheduler.yaml", "/etc/kubernetes/manifests/etcd.yaml", settings}
	var before []string
	for _, path := range others {
		before = append(before, s.Get(t, path))
	}
	if fields := restarts(); len(fields) > 0 {
		t.Errorf("stored %+v twice", fields)
	}
	for i, path := range others {
		if s.Get(t, path) != before[i] {
			t.Errorf("%s has changed, too", path)
		}
	}
}

// TestEncryptionFirst: a control plane without the keys gets them before its API server has to read them.
func TestEncryptionFirst(t *testing.T) {
	s := live(t)
	const dir = config.EncryptionDir
	storedElsewhere(t, s.API, "kubeadm-config", "ClusterConfiguration", "apiServer:\n  extraArgs: [{name: "+manifests.EncryptionFlag+", value: "+config.EncryptionFile+
		"}]\n  extraVolumes: [{name: encryption, hostPath: "+dir+", mountPath: "+dir+", readOnly: true, pathType: DirectoryOrCreate}]\n")
	before := s.Get(t, apiServer)
	fact.Error(t, toStored(t, s), node.EncryptionFileCheck, config.EncryptionFile, "`slipway encryption enable`")
	if s.Get(t, apiServer) != before {
		t.Error("the static Pod has changed")
	}
	s.Put(t, config.EncryptionFile, "kind: EncryptionConfiguration\n")
	phasetest.Fatal(t, toStored(t, s))
	fact.In(t, s.Get(t, apiServer), manifests.EncryptionFlag)
}

// TestRevertKeepsEncryption: no node takes its API server's encryption keys away.
func TestRevertKeepsEncryption(t *testing.T) {
	s := live(t)
	phasetest.Fatal(t, run(t, s))
	with := strings.Replace(s.Get(t, apiServer), "    - --secure-port", "    - --"+manifests.EncryptionFlag+"=/etc/kubernetes/keys.yaml\n    - --secure-port", 1)
	s.Put(t, apiServer, with)
	err := takeBack(t, s, "ChangedSince")
	fact.Error(t, err, manifests.APIServerName, "/etc/kubernetes/keys.yaml")
	fact.In(t, fault.Remedy(err), "`slipway encryption disable`")
	if s.Get(t, apiServer) != with {
		t.Error("the static Pod has changed")
	}
}

// TestStoredInPart: an operator who confirms a change hears that a ConfigMap has somebody else's text.
func TestStoredInPart(t *testing.T) {
	s, _, _ := killed(t, time.Minute)
	_, err := Answer(s.Env, trial.Confirmed, false)
	phasetest.Fatal(t, err)
	record := unfinished(t, s)
	phasetest.Fatal(t, setStoring(t.Context(), s.Env, record))
	edit(t, s, "kubelet-config", "kubelet", "podPidsLimit: 9\n")
	record.ConfigMaps[0].Version = "another"
	phasetest.Fatal(t, record.Set(s.Env, trial.Storing))
	s.Play(t, finish(true)...)
	fact.In(t, stored(t, s, "kubelet-config", "kubelet"), "podPidsLimit: 9")
	_, err = Answer(s.Env, trial.Confirmed, true)
	fact.Error(t, err, "kube-system/kubelet-config")
}
