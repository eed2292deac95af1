// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

// TestKeepPatience: the upgrade keeps this node's original startup probes, unless the user gives a time, and waits as long on a slow
// host.
func TestKeepPatience(t *testing.T) {
	normal, usual := config.DefaultHealthCheckTimeout, config.DefaultLimits().UpgradeManifests
	for name, test := range map[string]struct {
		probe       string
		given, want time.Duration
		upgrade     time.Duration
	}{
		"as made":       {"startupProbe: {failureThreshold: 60, periodSeconds: 10}", normal, 10 * time.Minute, 10 * time.Minute},
		"shorter":       {"startupProbe: {failureThreshold: 6, periodSeconds: 10}", normal, time.Minute, usual},
		"given":         {"startupProbe: {failureThreshold: 60, periodSeconds: 10}", 5 * time.Minute, 5 * time.Minute, usual},
		"without probe": {"image: x", normal, normal, usual},
	} {
		t.Run(name, func(t *testing.T) {
			h := stage.New(t)
			fixture.Put(t, h.Root, thisnode.APIServerManifest,
				"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: kube-apiserver, "+test.probe+"}]}\n")
			given := &config.Timeouts{ControlPlaneComponentHealthCheck: &metav1.Duration{Duration: test.given}, UpgradeManifests: &metav1.Duration{Duration: usual}}
			got := thisnode.WithStartupTime(h, given)
			if probe, upgrade := got.ControlPlaneComponentHealthCheck.Duration, got.UpgradeManifests.Duration; probe != test.want || upgrade != test.upgrade {
				t.Errorf("%s and %s, want %s and %s", probe, upgrade, test.want, test.upgrade)
			}
			if unset := thisnode.WithStartupTime(h, &config.Timeouts{}); name == "as made" && unset.UpgradeManifests.Duration != test.upgrade {
				t.Errorf("without timeouts, it is %s", unset.UpgradeManifests.Duration)
			}
			if given.ControlPlaneComponentHealthCheck.Duration != test.given || given.UpgradeManifests.Duration != usual {
				t.Error("the user's value has changed")
			}
		})
	}
}

// TestAwaitServer: an API server with a new static Pod gets as long as an upgrade gives it.
func TestAwaitServer(t *testing.T) {
	limits := &config.Timeouts{KubernetesAPICall: &metav1.Duration{Duration: time.Minute}, UpgradeManifests: &metav1.Duration{Duration: 5 * time.Minute}}
	for name, test := range map[string]struct{ age, kubelet, want time.Duration }{
		"just replaced": {0, time.Hour, 5 * time.Minute},
		"a moment ago":  {2 * time.Minute, time.Hour, 3 * time.Minute},
		"long ago":      {time.Hour, time.Hour, 0}, // as for any call
		"in the future": {-time.Hour, time.Hour, 5 * time.Minute},
		"just booted":   {time.Hour, time.Minute, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			h := stage.New(t)
			h.Has.Units[host.KubeletUnit] = host.UnitState{ActiveSince: time.Now().Add(-test.kubelet)}
			fixture.Put(t, h.Root, thisnode.APIServerManifest, "")
			at := time.Now().Add(-test.age)
			if err := os.Chtimes(filepath.Join(h.Root, thisnode.APIServerManifest), at, at); err != nil {
				t.Fatal(err)
			}
			api := &readiness{Plan: cluster.NewPlan(func(cluster.Action) {}, nil)}
			if err := (Source{API: api, Host: h, Say: func(string, ...any) {}}).awaitServer(t.Context(), limits); err != nil {
				t.Fatal(err)
			}
			if off := api.limit - test.want; off < -time.Minute/2 || off > time.Second {
				t.Errorf("it waits up to %s, want %s", api.limit, test.want)
			}
		})
	}
}

// TestAwaitServerSays that it waits, but not if the server is ready at once.
func TestAwaitServerSays(t *testing.T) {
	limits := &config.Timeouts{KubernetesAPICall: &metav1.Duration{Duration: time.Minute}, UpgradeManifests: &metav1.Duration{Duration: 5 * time.Minute}}
	for delay, want := range map[time.Duration]string{0: "", 3 * time.Second: "1m0s"} {
		synctest.Test(t, func(t *testing.T) {
			said := ""
			say := func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
			api := &readiness{Plan: cluster.NewPlan(func(cluster.Action) {}, nil), delay: delay}
			err := Source{API: api, Host: stage.New(t), Say: say}.awaitServer(t.Context(), limits)
			synctest.Wait()
			if err != nil || (said == "") != (want == "") || !strings.Contains(said, want) || strings.Count(said, "API server") > 1 {
				t.Errorf("after %s it said %q, want %q; error %v", delay, said, want, err)
			}
		})
	}
}

// readiness remembers how long the wait for the API server may take; 0 if its context has no deadline.
type readiness struct {
	*cluster.Plan
	delay, limit time.Duration
}

func (r *readiness) Ready(ctx context.Context) error {
	if deadline, limited := ctx.Deadline(); limited {
		r.limit = time.Until(deadline)
	}
	time.Sleep(r.delay)
	return nil
}

// TestReadDeletedKubeProxy: nothing reads the ConfigMap that's left of a deleted kube-proxy, unless its DaemonSet can't be seen. The
// run still notices changes of it.
func TestReadDeletedKubeProxy(t *testing.T) {
	for name, row := range map[string]struct {
		set  cluster.Object
		err  error
		read bool
	}{
		"there":   {set: &appsv1.DaemonSet{ObjectMeta: inKubeSystem("kube-proxy")}, read: true},
		"deleted": {},
		"unseen":  {err: errors.New("forbidden"), read: true},
	} {
		api := cluster.NewPlan(func(cluster.Action) {}, nil)
		err := api.Ensure(t.Context(), fixture.ConfigMap("kube-proxy", "config.conf", "mode: userspace\n"))
		if err == nil && row.set != nil {
			err = api.Ensure(t.Context(), row.set)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := readComponents(t.Context(), &unseenDaemons{api, row.err}, true)
		noted := slices.ContainsFunc(got.texts, func(s config.StoredText) bool { return s.ConfigMap == "kube-proxy" && s.Text != "" })
		if err != nil || (got.kubeProxy != nil) != row.read || !noted {
			t.Errorf("%s: %q, %v, %v", name, got.kubeProxy, got.texts, err)
		}
	}
}

// unseenDaemons is an API that doesn't show DaemonSets if it has an error.
type unseenDaemons struct {
	*cluster.Plan
	err error
}

func (u *unseenDaemons) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if _, is := obj.(*appsv1.DaemonSet); is && u.err != nil {
		return false, u.err
	}
	return u.Plan.Get(ctx, obj)
}

// TestFinish: a rollback ends once, and not before the newest backup.
func TestFinish(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	second, hour := now.Truncate(time.Second), now.Add(time.Hour)
	for name, c := range map[string]struct{ ended, lastBackup, want time.Time }{
		"without backups":     {want: second},
		"after its backup":    {lastBackup: now.Add(-time.Hour), want: second},
		"the clock was ahead": {lastBackup: hour, want: hour},
		"it has ended":        {ended: now.Add(-time.Minute), lastBackup: hour, want: now.Add(-time.Minute)},
	} {
		p := Progress{Finished: c.ended}
		if p.Finish(now, c.lastBackup); !p.Finished.Equal(c.want) {
			t.Errorf("%s: at %s, want %s", name, p.Finished, c.want)
		}
	}
}

// TestAdviseRollback: only if the API server doesn't serve, an upgrade may have broken it.
func TestAdviseRollback(t *testing.T) {
	refused := fault.WithRemedy(errors.Wrap(syscall.ECONNREFUSED, "not ready"), "start it")
	expired := fault.WithRemedy(errors.New("unauthorized"), "renew it")
	for err, want := range map[error]string{refused: "`slipway upgrade rollback`", errors.New("[-]etcd failed"): "`slipway upgrade rollback`", expired: "renew it"} {
		if got := fault.Remedy(adviseRollback(err)); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}
