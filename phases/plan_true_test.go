// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// theatre is a host and an API on which a variant is first planned and then run.
type theatre struct {
	variant
	node   *config.Node
	root   string
	host   *phasetest.LastingHost
	api    *fakeapi.Server
	record *phasetest.Record // changes the API received
}

func newTheatre(t *testing.T, v variant) *theatre {
	t.Helper()
	p := &theatre{variant: v, node: v.node(t), root: teststage.Dir(t), record: &phasetest.Record{}}
	p.host = phasetest.NewLastingHost(p.root)
	t.Cleanup(p.host.Real.Close)
	if err := errors.Join(phasetest.Furnish(p.root), phasetest.WillMake(p.root, phasetest.KubeletPEM, phasetest.RotatedPEM(t, p.node.Name, time.Now().Add(time.Hour)))); err != nil {
		t.Fatal(err)
	}
	for path, text := range v.files {
		put(t, filepath.Join(p.root, path), text)
	}
	if v.active {
		if err := p.host.Note(phasetest.KubeletActive); err != nil {
			t.Fatal(err)
		}
	}
	if v.pulled {
		for _, image := range p.node.Images() {
			if err := p.host.Note(phasetest.ImageMark(image)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.furnishPKI(t)
	earlier := &step.Env{Config: p.node, Host: p.host, UI: phasetest.QuietUI()}
	if err := step.Run(t.Context(), earlier, v.done, step.Options{}); err != nil {
		t.Fatal(err)
	}
	p.api = phasetest.OwnAPI(p.root, func(*http.Request) fakeapi.Fault { return p.record.Witnessed })
	t.Cleanup(func() { p.api.CloseClientConnections(); p.api.Close() })
	return p
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// furnishPKI links certificates in another directory to where the API looks for them.
func (p *theatre) furnishPKI(t *testing.T) {
	t.Helper()
	usual := filepath.Join(p.root, "/etc/kubernetes/pki")
	if p.node.Paths.PKI == "/etc/kubernetes/pki" {
		return
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(usual), 0o755), os.Symlink(filepath.Base(p.node.Paths.PKI), usual)); err != nil {
		t.Fatal(err)
	}
}

func (p *theatre) plan(t *testing.T, workflow []step.Phase) *phasetest.Record {
	t.Helper()
	planned := &phasetest.Record{}
	env := &step.Env{Config: p.node, Host: plan.NewOverlay(p.host, planned.OnHost), Etcd: etcd.NewPlan(planned.OnEtcd), Cluster: cluster.NewPlan(planned.Intended, nil),
		UI: phasetest.PhaseUI{UI: phasetest.QuietUI(), Record: planned}}
	if err := step.Run(t.Context(), env, workflow, step.Options{Skip: p.skip, Serial: true}); err != nil {
		t.Fatalf("the plan of\n%s: %v", p.documents, err)
	}
	return planned
}

// play is the run itself. Its events for programs must match the documentation.
func (p *theatre) play(t *testing.T, workflow []step.Phase, serial bool) *phasetest.Record {
	t.Helper()
	done := p.record
	var said bytes.Buffer
	events := ui.NewEvents("slipway", "v1", "init", &said)
	env := &step.Env{Config: p.node, Host: plan.NewRecorder(p.host, done.OnHost), Etcd: phasetest.AskedEtcd{}, UI: phasetest.PhaseUI{UI: events, Record: done}, Cluster: cluster.New(cluster.Options{
		Kubeconfig: p.node.Paths.AdminKubeconfig, SuperAdmin: filepath.Join(p.node.Paths.Kubernetes, "super-admin.conf"),
		ReadFile: p.host.ReadFile, Endpoint: p.api.Listener.Addr().String(), Timeout: p.node.Timeouts.KubernetesAPICall,
	})}
	err := step.Run(t.Context(), env, workflow, step.Options{Skip: p.skip, Serial: serial})
	if err != nil {
		t.Errorf("the run of\n%s: %v", p.documents, err)
	}
	events.End(ui.Summary{Node: p.node.Name, Endpoint: p.node.Endpoint(), ControlPlane: true}, err)
	phasetest.CheckEvents(t, said.Bytes())
	return done
}

// tree lists the files and directories of the host, except the test's systemd, kubelet and runtime.
func (p *theatre) tree(t *testing.T) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, p.root)
		switch rel {
		case "/var/fake":
			return fs.SkipDir
		case phasetest.KubeletPEM, "/etc/.pwd.lock": // programs that change accounts create the lock
			return nil
		}
		info, err := d.Info()
		found[rel] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// falsehoods returns the differences between a plan and its run, in actions and in the resulting files.
func falsehoods(planned, done *phasetest.Record, before, after map[string]fs.FileMode, serial bool) string {
	var text string
	if serial {
		text = cmp.Diff(planned.InOrder(), done.InOrder())
	} else {
		text = cmp.Diff(planned.AsSet(), done.AsSet())
	}
	return text + cmp.Diff(planned.Predict(before), after)
}

// TestPlanIsTrue generates configurations and hosts, plans init for each, runs it, and compares the two.
func TestPlanIsTrue(t *testing.T) {
	const variants = 24
	for seed := range uint64(variants) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			v := generate(t, seed)
			modes := []bool{true} // serial
			if seed%3 == 0 {
				modes = []bool{true, false}
			}
			for _, serial := range modes {
				p := newTheatre(t, v)
				before := p.tree(t)
				planned := p.plan(t, bootstrap.Init())
				if serial {
					if diff := cmp.Diff(planned.InOrder(), p.plan(t, bootstrap.Init()).InOrder()); diff != "" {
						t.Errorf("the second plan differs from the first:\n%s", diff)
					}
				}
				if diff := cmp.Diff(before, p.tree(t)); diff != "" {
					t.Fatalf("the plan changed the host:\n%s", diff)
				}
				done := p.play(t, bootstrap.Init(), serial)
				if diff := falsehoods(planned, done, before, p.tree(t), serial); diff != "" {
					t.Errorf("serial %v: the plan is not what the run did (-plan +run):\n%s\nconfiguration:\n%s", serial, diff, v.documents)
				}
			}
		})
	}
}

// TestUntruePlansAreFound: a comparison that finds nothing proves nothing.
func TestUntruePlansAreFound(t *testing.T) {
	file := func(env *step.Env, path, text string) error {
		_, err := env.Host.WriteFile(path, []byte(text), 0o644)
		return err
	}
	onlyInRun := func(env *step.Env, do func() error) error {
		if _, planning := env.Cluster.(*cluster.Plan); planning {
			return nil
		}
		return do()
	}
	tests := map[string]func(p *theatre, env *step.Env) error{
		"": func(*theatre, *step.Env) error { return nil },
		"a file that the plan lacks": func(_ *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return file(env, "/etc/more", "x") })
		},
		"a file behind the host's back": func(p *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return os.WriteFile(filepath.Join(p.root, "/etc/more"), nil, 0o600) })
		},
		"another mode behind the host's back": func(p *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return os.Chmod(filepath.Join(p.root, "/etc/kubernetes/admin.conf"), 0o644) })
		},
		"other content": func(_ *theatre, env *step.Env) error {
			if err := onlyInRun(env, func() error { return file(env, "/etc/more", "run") }); err != nil {
				return err
			}
			if _, planning := env.Cluster.(*cluster.Plan); planning {
				return file(env, "/etc/more", "plan")
			}
			return nil
		},
		"a removal": func(_ *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return env.Host.Remove("/etc/kubernetes/admin.conf") })
		},
		"an order to systemd": func(_ *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return env.Host.OrderUnit(context.Background(), host.RestartUnit, node.KubeletUnit) })
		},
		"an object": func(_ *theatre, env *step.Env) error {
			return onlyInRun(env, func() error { return env.Cluster.Ensure(context.Background(), fixture.ConfigMap("more", "a", "b")) })
		},
		"a mark": func(_ *theatre, env *step.Env) error {
			return onlyInRun(env, func() error {
				return env.Cluster.MarkNode(context.Background(), "cp-1", cluster.Mark{Labels: map[string]string{"more": ""}})
			})
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTheatre(t, generate(t, 0))
			p.skip = nil
			workflow := append(bootstrap.Init(), step.Phase{Name: "more", Run: func(_ context.Context, env *step.Env) error { return do(p, env) }})
			before := p.tree(t)
			planned := p.plan(t, workflow)
			done := p.play(t, workflow, true)
			if diff := falsehoods(planned, done, before, p.tree(t), true); (diff != "") != (name != "") {
				t.Errorf("the difference is %q", diff)
			}
		})
	}
}
