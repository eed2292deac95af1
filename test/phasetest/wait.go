// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Probes answers by URL: nil for all URLs but Broken.
type Probes struct {
	mu     sync.Mutex
	Asked  []string
	Broken map[string]error
}

func (p *Probes) Answer(_ context.Context, probe host.Probe) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.Asked, probe.URL) {
		p.Asked = append(p.Asked, probe.URL)
	}
	return p.Broken[probe.URL]
}

func (p *Probes) Has(url string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.Asked, url)
}

const (
	KubeletURL           = "http://127.0.0.1:10248/healthz"
	APIServerURL         = "https://192.0.2.11:6443/livez"
	ControllerManagerURL = "https://127.0.0.1:10257/healthz"
	SchedulerURL         = "https://127.0.0.1:10259/livez"
)

func WaitStage(t *testing.T, documents string) (*Stage, *Probes) {
	t.Helper()
	s := NewStage(t, documents)
	answers := &Probes{Broken: map[string]error{}}
	s.FakeHost.On.Probe = answers.Answer
	return s, answers
}

func ErrOf(p *Probes, url string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Broken[url]
}
