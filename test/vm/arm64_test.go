// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"runtime"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/test/bundles"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// TestUpArm64 makes a node of a machine with Arm's architecture, and runs a Pod.
func TestUpArm64(t *testing.T) {
	m := newMachineOf(t, openLabOf(t, "arm64"), nil)
	m.boots()
	if here := strings.TrimSpace(m.must("uname", "-m")); here != "aarch64" {
		t.Fatalf("the machine is a %s", here)
	}
	m.installs()
	m.becomesNode()
}

// bundleFor returns a bundle for the lab's machines. `make vm` makes only this architecture's; only TestUpArm64 needs another.
func bundleFor(t *testing.T, lab *nodes.Lab) string {
	t.Helper()
	if lab.Architecture() == runtime.GOARCH {
		return bundleOf(t, runtime.GOARCH)
	}
	list, err := bundles.List(t.Context(), lab, "")
	if err != nil {
		t.Fatal(err)
	}
	return createBundle(t, list)
}

func bundleOf(t *testing.T, architecture string) string {
	t.Helper()
	return only(t, "../../dist/slipway-bundle-*-linux-"+architecture+".tar", "make bundle ARCH="+architecture)
}

func packageOf(t *testing.T, architecture string) string {
	t.Helper()
	return only(t, "../../bin/packages/*_"+architecture+".deb", "make test-packages ARCHITECTURES=amd64,arm64")
}

func createBundle(t *testing.T, list *bundle.List) string {
	t.Helper()
	path, err := bundles.Create(t.Context(), "../../bin/slipway", list, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}
