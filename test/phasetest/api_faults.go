// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/tier"
)

// apiFaults are faults that a request may meet. Temporary faults mustn't end a run.
var apiFaults = []struct {
	name   string
	fault  fakeapi.Fault
	passes bool
}{
	{"403", fakeapi.Forbidden, false},
	{"409", fakeapi.Conflict, true},
	{"429", fakeapi.TooMany, true},
	{"500", fakeapi.Trouble, true},
	{"hang", fakeapi.Hang, false}, // for longer than the run waits
	{"reset", fakeapi.Reset, true},
	{"done, and the answer lost", fakeapi.LoseAnswer, true},
}

func SpoilEach(t *testing.T, crashes []Scenario) {
	for _, c := range crashes {
		t.Run(c.Name, func(t *testing.T) {
			want := NewScene(t, c)
			defer want.Close()
			count := &nthRequest{}
			count.over(want)
			if said, err := want.Again(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			var group errgroup.Group
			group.SetLimit(24) // most only wait
			for _, pair := range tier.Sample(t, 8, count.seen*len(apiFaults)) {
				f := apiFaults[pair%len(apiFaults)]
				group.Go(func() error { apiFaultAt(t, want, pair/len(apiFaults)+1, f.name, f.fault, f.passes); return nil })
			}
			_ = group.Wait()
			t.Logf("there are %d requests, and %d faults that each may meet", count.seen, len(apiFaults))
		})
	}
}

// nthRequest spoils a single request.
type nthRequest struct {
	mu    sync.Mutex
	at    int
	fault fakeapi.Fault
	seen  int
	what  string // the request
}

// over overrides the server's own behavior.
func (n *nthRequest) over(s *Scene) {
	s.API.SpoilFirst(func(r *http.Request) fakeapi.Fault {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.seen++; n.seen == n.at {
			n.what = r.Method + " " + r.URL.Path
			return n.fault
		}
		return nil
	})
}

func apiFaultAt(t *testing.T, want *Scene, at int, name string, fault fakeapi.Fault, passes bool) {
	s := NewScene(t, want.Scenario)
	defer s.Close()
	nth := &nthRequest{at: at, fault: fault}
	nth.over(s)
	h := NewLastingHost(s.Root)
	if want.Name == "init" { // it calls the API after writing its files
		copyTree(t, want.Root+"/etc", s.Root+"/etc")
		copyTree(t, want.Root+"/var", s.Root+"/var")
		h.skip = []string{"preflight", "certs", "kubeconfig", "kubelet-start", "etcd", "control-plane", "wait-control-plane"}
	}
	if name == "hang" {
		h.Limit = 2 * time.Second
	}
	started := time.Now()
	said, err := s.On(t.Context(), h)
	where := fmt.Sprintf("%s: %s", nth.what, name)
	if took := time.Since(started); took > 2*time.Minute {
		t.Errorf("%s: the run took %s: %v", where, took, err)
	}
	if passes && err != nil {
		t.Errorf("%s: %v\n%s", where, err, said)
	}
	nth.mu.Lock()
	nth.at = 0
	nth.mu.Unlock()
	s.FinishesAs(t, want, where)
}

func copyTree(t *testing.T, from, to string) {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		copied := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.MkdirAll(copied, info.Mode())
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(copied, data, info.Mode()), os.Chtimes(copied, time.Time{}, info.ModTime()))
	})
	if err != nil {
		t.Error(err)
	}
}
