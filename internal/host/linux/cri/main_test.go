// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// only is a host with nothing but container runtimes: anything else panics.
type only struct {
	*Runtimes
	rest
}

type rest struct{ host.Host }

func onlyRuntimes() only { return only{Runtimes: &Runtimes{}} }

func newRuntimes(t *testing.T) only {
	r := only{Runtimes: &Runtimes{Notes: files.At(t.TempDir())}}
	t.Cleanup(r.Close)
	return r
}
