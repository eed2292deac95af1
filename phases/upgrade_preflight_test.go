// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
)

// latePods is an API that has the Pods of the nodes from the given look on.
type latePods struct {
	*planes
	from, looks int
}

func (l *latePods) Pods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	if l.looks++; l.looks < l.from {
		return nil, nil
	}
	return l.planes.Pods(ctx, namespace, selector)
}

// TestAwaitServerPods: the kubelet of a new control plane needs a moment to make them. One that will never be there is
// for the check of the versions.
func TestAwaitServerPods(t *testing.T) {
	waiting := func(node string) line { return line{"Pod", "API server", "of " + node + ", ", "1m0s\n"} }
	for name, test := range map[string]struct {
		from        int
		dead        string
		interrupted time.Duration // after this time
		took        time.Duration
		said        line // nothing else
		fails       string
	}{
		"all there": {},
		"late":      {from: 4, took: 3 * readyInterval, said: waiting("cp-1")},
		"never":     {dead: "cp-2", took: time.Minute, said: waiting("cp-2")},
		"interrupted": {dead: "cp-2", interrupted: 5 * time.Second, took: 5 * time.Second, said: waiting("cp-2"),
			fails: "interrupt signal received"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAddonStage(t, "")
			if test.dead != "" {
				s.planes.server(test.dead, "")
			}
			s.Cluster = &latePods{planes: s.planes, from: test.from}
			s.said.Reset()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.interrupted > 0 {
					time.AfterFunc(test.interrupted, func() { cancel(errors.New(test.fails)) })
				}
				began := time.Now()
				err := awaitServerPods(ctx, s.Env)
				if took := time.Since(began); took != test.took || message(err) != test.fails {
					t.Errorf("it took %s, want %s, and returned %v, want %q", took, test.took, err, test.fails)
				}
				if lines := strings.Count(s.said.String(), "\n"); lines != min(len(test.said), 1) {
					t.Errorf("it said %q", s.said.String())
				}
				if test.said != nil {
					s.saidOnce(t, test.said)
				}
			})
		})
	}
}
