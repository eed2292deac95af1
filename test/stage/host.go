// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package stage has the tests' double of host.Host: files in a temporary directory, everything else in memory (Has), orders
// recorded (Jobs), and each method replaceable (On).
//
// Like test/fixture, it imports neither certs nor phases, so their own tests can use it.
package stage

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
)

// Host is a host whose files are below a directory, and whose systemd, container runtime, kernel and network are in memory.
// Orders to them succeed, unless a test says otherwise.
//
// It embeds only readers of files, which work below Root. Any other new method of host.Host fails to compile until it's
// implemented here.
type Host struct {
	host.FileReader
	host.PathReader

	Root string
	// Real has the files. Its other answers come from the machine running the test.
	Real *linux.Host
	// Has is the state of everything but files. On replaces single methods.
	Has State
	On  Overrides

	// Jobs are the orders in their order of arrival: "start kubelet.service", "pull IMAGE", and "write NAME" for each changed
	// file. Owned lists changes of ownership: "PATH UID:GID".
	Jobs, Owned []string
	// Listened lists the addresses PortFree was asked about.
	Listened []string
	// Fail has errors to return: for orders by their text in Jobs; for questions by the method's name, or by name and path:
	// "ReadFile /etc/passwd". A refused order is in Jobs, too.
	Fail map[string]error
	// Before is called with each order, with whole paths, before it's carried out. Its error refuses the order.
	Before func(ctx context.Context, order string) error

	mu sync.Mutex // phases and checks run side by side
}

var _ host.Host = (*Host)(nil)

// At returns a host in a directory: a small machine whose container runtime runs and whose kubelet doesn't.
func At(root string) *Host {
	files := linux.NewAt(root)
	return &Host{FileReader: files, PathReader: files, Root: root, Real: files, Has: ordinary(), Fail: map[string]error{}}
}

// New returns a host in a new directory, in memory if possible: there, syncing costs no time.
func New(t *testing.T) *Host {
	t.Helper()
	return At(Dir(t))
}

func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slipway-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Orders returns the Jobs without writes of files.
func (h *Host) Orders() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.Jobs), func(job string) bool { return strings.HasPrefix(job, "write ") })
}

// Did lists the objects of all orders that begin with verb.
func (h *Host) Did(verb string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, job := range h.Jobs {
		if about, is := strings.CutPrefix(job, verb+" "); is {
			list = append(list, about)
		}
	}
	return list
}

// Pass lets time pass on a clock set by a test, while phases may read it.
func (h *Host) Pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Has.Time = h.Has.Time.Add(d)
}

// fails returns the error a test has set for a question.
func (h *Host) fails(questions ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range questions {
		if err := h.Fail[q]; err != nil {
			return err
		}
	}
	return nil
}

// ordered notes an order, and returns the error if it's refused.
func (h *Host) ordered(ctx context.Context, order string) error {
	err := h.noted(order)
	if refused := h.before(ctx, order); refused != nil {
		return refused
	}
	return err
}

func (h *Host) before(ctx context.Context, order string) error {
	if h.Before == nil {
		return nil
	}
	return h.Before(ctx, order)
}

func (h *Host) noted(job string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Jobs = append(h.Jobs, job)
	return h.Fail[job]
}

func (h *Host) wrote(path string, changed bool, err error) (bool, error) {
	if changed && err == nil {
		err = h.noted("write " + filepath.Base(path))
	}
	return changed, err
}

// with gives do the state, while nobody else changes it.
func (h *Host) with(do func(has *State)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(&h.Has)
}
