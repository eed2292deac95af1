// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/kill"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

func TestMain(m *testing.M) {
	kill.Play()
	runIfAsked(killable)
	goleak.VerifyTestMain(m)
}

// stage is what tests of single phases run on: a host in a directory whose answers the test sets, an API that only
// records, and the output.
type stage struct {
	*Env
	host    *teststage.Host
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
	s := &stage{host: h, root: root}
	s.api = cluster.NewPlan(func(a cluster.Action) {
		s.done = append(s.done, strings.Join(strings.Fields(string(a.Verb)+" "+a.Kind+" "+a.Name), " "))
	}, nil)
	s.Env = &Env{Config: fixture.Node(t, documents), Host: s.host, Cluster: s.api, Etcd: etcd.NewPlan(func(etcd.Action) {}), UI: ui.NewLines(&s.said, &s.results)}
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

// pick picks phases of a workflow by their names.
func pick(workflow []Phase, names ...string) (picked []Phase) {
	for _, p := range workflow {
		if slices.Contains(names, p.Name) {
			p.Needs = nil
			picked = append(picked, p)
		}
	}
	if len(picked) != len(names) {
		panic(fmt.Sprintf("of %q, the workflow has %d", names, len(picked)))
	}
	return picked
}

// certsCA is the phase certs/ca, the first of the table.
func certsCA() Phase { return certificates().Children[0] }
