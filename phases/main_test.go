// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/kill"
)

func TestMain(m *testing.M) {
	kill.Play()
	runIfAsked()
	goleak.VerifyTestMain(m)
}

// stage is what tests of single phases run on: a host in a directory whose answers the test sets, an API that only
// records, and the output.
type stage struct {
	*Env
	host    *stubHost
	root    string
	api     *cluster.Plan
	done    []string // to the API
	said    bytes.Buffer
	results bytes.Buffer
}

// newStage loads the documents as `init --config` does.
func newStage(t *testing.T, documents string) *stage {
	t.Helper()
	h, root := newDirHost(t)
	s := &stage{host: &stubHost{dirHost: h}, root: root}
	s.api = cluster.NewPlan(func(a cluster.Action) {
		s.done = append(s.done, strings.Join(strings.Fields(string(a.Verb)+" "+a.Kind+" "+a.Name), " "))
	}, nil)
	s.Env = &Env{Config: fixture.Node(t, documents), Host: s.host, Cluster: s.api, UI: ui.NewLines(&s.said, &s.results)}
	return s
}

// put writes a file of the stage's host.
func (s *stage) put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, s.root, path, text)
}

// get reads a file of the stage's host.
func (s *stage) get(t *testing.T, path string) string {
	t.Helper()
	return fixture.Get(t, s.root, path)
}

// play runs phases, which must succeed.
func (s *stage) play(t *testing.T, workflow ...Phase) {
	t.Helper()
	if err := Run(t.Context(), s.Env, workflow, Options{}); err != nil {
		t.Fatal(err)
	}
}

// stubHost is a dirHost whose answers a test sets. A nil function leaves the answer of dirHost.
type stubHost struct {
	*dirHost
	unit  func() (host.UnitState, error)
	probe func(ctx context.Context, p host.Probe) error
	uid   int
	mu    sync.Mutex // phases run side by side
	now   time.Time
	fail  map[string]error // by job
	owned []string         // what was given to whom
	kept  []string         // by GiveTree
	// locked is called as soon as the accounts are locked.
	locked func()
}

// Unit is active once it was started, unless the test says otherwise.
func (h *stubHost) Unit(context.Context, string) (host.UnitState, error) {
	if h.unit != nil {
		return h.unit()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := host.UnitState{LoadState: "loaded", ActiveState: "inactive"}
	for _, job := range h.jobs {
		switch verb, _, _ := strings.Cut(job, " "); verb {
		case "start":
			state.ActiveState = "active"
		case "stop":
			state.ActiveState = "inactive"
		}
	}
	return state, nil
}

func (h *stubHost) EnableUnit(_ context.Context, name string) error  { return h.job("enable " + name) }
func (h *stubHost) StartUnit(_ context.Context, name string) error   { return h.job("start " + name) }
func (h *stubHost) StopUnit(_ context.Context, name string) error    { return h.job("stop " + name) }
func (h *stubHost) RestartUnit(_ context.Context, name string) error { return h.job("restart " + name) }

func (h *stubHost) job(text string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, text)
	return h.fail[text]
}

func (h *stubHost) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	changed, err := h.dirHost.WriteFile(path, data, mode)
	if changed {
		return true, h.job("write " + filepath.Base(path))
	}
	return changed, err
}

func (h *stubHost) Probe(ctx context.Context, p host.Probe) error {
	if h.probe == nil {
		return h.dirHost.Probe(ctx, p)
	}
	return h.probe(ctx, p)
}

func (h *stubHost) EffectiveUID() int { return h.uid }

func (h *stubHost) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.IsZero() {
		return time.Now()
	}
	return h.now
}

// passes moves the clock, which a phase that runs may be reading.
func (h *stubHost) passes(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// certsCA is the phase certs/ca, the first of the table.
func certsCA() Phase { return certificates().Children[0] }
