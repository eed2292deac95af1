// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package stage has the host that tests play on.
//
// Like test/fixture, it imports neither certs nor phases, so that their own tests can use it.
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

// Host is a host whose files are below a directory, and whose systemd, container runtime, kernel and network are in
// memory. Every order to them succeeds, unless a test says otherwise.
//
// It embeds readers of files alone, which work below Root. Any other method that is added to host.Host does not compile
// until this host says what it does about it.
type Host struct {
	host.FileReader
	host.PathReader

	Root string
	// Real has the files. Its other answers are those of the machine that runs the test.
	Real *linux.Host
	// Has is the state of everything but files. On replaces single methods.
	Has State
	On  Overrides

	// Jobs are the orders, as they came: "start kubelet.service", "pull IMAGE", and "write NAME" for each file that has
	// changed. Owned is what was given to whom: "PATH UID:GID".
	Jobs, Owned []string
	// Listened are the addresses that PortFree was asked for.
	Listened []string
	// Fail has errors to return: of an order by its text in Jobs, of a question by the name of its method, or by the name
	// and a path: "ReadFile /etc/passwd". A refused order is in Jobs, too.
	Fail map[string]error
	// Before is called with each order, with whole paths, before it is carried out. Its error refuses the order.
	Before func(ctx context.Context, order string) error

	mu sync.Mutex // phases and checks run side by side
}

var _ host.Host = (*Host)(nil)

// At is a host in a directory: a small one, with a kubelet that does not run and a container runtime that does.
func At(root string) *Host {
	files := linux.NewAt(root)
	return &Host{FileReader: files, PathReader: files, Root: root, Real: files, Has: ordinary(), Fail: map[string]error{}}
}

// New is a host in a new directory, in memory if it can be: there, syncing costs no time.
func New(t *testing.T) *Host {
	t.Helper()
	return At(Dir(t))
}

// Dir is a new directory for the files of a host.
func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "slipway-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Orders are the Jobs without writes of files.
func (h *Host) Orders() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.Jobs), func(job string) bool { return strings.HasPrefix(job, "write ") })
}

// Did lists what the orders that begin with verb were about.
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

// Pass lets time pass on a clock that a test has set, while phases may read it.
func (h *Host) Pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Has.Time = h.Has.Time.Add(d)
}

// fails is the error that a test has set for a question.
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

// ordered notes an order, and returns the error if it is to be refused.
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

// wrote notes that a file has changed.
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
