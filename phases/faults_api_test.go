// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/tier"
)

// apiFaults are faults that a request may meet. The temporary ones must not end a run.
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

// TestAPIFaults lets each request of a run meet each fault once. The run survives temporary faults and reports the
// others in time. The same run again finishes as if nothing had happened.
func TestAPIFaults(t *testing.T) {
	spoilEach(t, crashes)
}

func spoilEach(t *testing.T, crashes []crashing) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			want := newScene(t, c)
			defer want.close()
			count := &nthRequest{}
			count.over(want)
			if said, err := want.again(t.Context()); err != nil {
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

// nthRequest spoils one request.
type nthRequest struct {
	mu    sync.Mutex
	at    int
	fault fakeapi.Fault
	seen  int
	what  string // the request
}

// over overrides what the server would do by itself.
func (n *nthRequest) over(s *scene) {
	s.api.SpoilFirst(func(r *http.Request) fakeapi.Fault {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.seen++; n.seen == n.at {
			n.what = r.Method + " " + r.URL.Path
			return n.fault
		}
		return nil
	})
}

func apiFaultAt(t *testing.T, want *scene, at int, name string, fault fakeapi.Fault, passes bool) {
	s := newScene(t, want.crashing)
	defer s.close()
	nth := &nthRequest{at: at, fault: fault}
	nth.over(s)
	h := newLastingHost(s.root)
	if want.name == "init" { // it calls the API after writing its files
		copyTree(t, want.root+"/etc", s.root+"/etc")
		copyTree(t, want.root+"/var", s.root+"/var")
		h.skip = []string{"preflight", "certs", "kubeconfig", "kubelet-start", "etcd", "control-plane", "wait-control-plane"}
	}
	if name == "hang" {
		h.limit = 2 * time.Second
	}
	started := time.Now()
	said, err := s.on(t.Context(), h)
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
	s.finishesAs(t, want, where)
}

// copyTree copies a directory with modes and times.
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

// TestTwoRuns: a run that finds another one at work reports at once which one it is.
func TestTwoRuns(t *testing.T) {
	s := newScene(t, crashingInit)
	defer s.close()
	working, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.api.SpoilFirst(func(*http.Request) fakeapi.Fault {
		once.Do(func() { close(working); <-release })
		return nil
	})
	first := s.command(io.Discard)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	<-working
	started := time.Now()
	err := s.run(t.Context(), newLastingHost(s.root), s.api.Listener.Addr().String(), io.Discard)
	if took := time.Since(started); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	var locked *host.LockedError
	if !errors.As(err, &locked) || locked.PID != first.Process.Pid || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", first.Process.Pid)) || locked.Command == "" {
		t.Errorf("the second run: %v, and the first is process %d", err, first.Process.Pid)
	}
	close(release)
	if err := first.Wait(); err != nil {
		t.Errorf("the first run: %v", err)
	}
}
