// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// only is a host with nothing but systemd: anything else panics.
type only struct {
	*Bus
	rest
}

type rest struct{ host.Host }

func onlyUnits() only { return only{Bus: &Bus{Sync: func(string) error { return nil }}} }

func newBus(t *testing.T) only {
	b := onlyUnits()
	t.Cleanup(b.Close)
	return b
}
