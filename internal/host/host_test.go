// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"reflect"
	"testing"
)

func TestRuntimeService(t *testing.T) {
	for socket, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "containerd.service",
		"/var/run/crio/crio.sock":                "crio.service",
		"unix:///var/run/cri-dockerd.sock":       "cri-docker.service",
		"unix:///run/other.sock":                 "other.service",
	} {
		if got := RuntimeService(socket); got != want {
			t.Errorf("%s: %s, want %s", socket, got, want)
		}
	}
}

// TestPartsAreSmall limits the parts of Host to a size you can read at once.
func TestPartsAreSmall(t *testing.T) {
	const most = 15
	total := 0
	for _, part := range []reflect.Type{
		reflect.TypeFor[FileReader](), reflect.TypeFor[PathReader](), reflect.TypeFor[UnitReader](), reflect.TypeFor[RuntimeReader](),
		reflect.TypeFor[SystemReader](), reflect.TypeFor[NetworkReader](), reflect.TypeFor[Remote](), reflect.TypeFor[FileWriter](),
		reflect.TypeFor[OwnerWriter](), reflect.TypeFor[UnitWriter](), reflect.TypeFor[RuntimeWriter](), reflect.TypeFor[NetworkWriter](),
		reflect.TypeFor[KernelWriter](), reflect.TypeFor[DiskTester](),
	} {
		total += part.NumMethod()
		if part.NumMethod() > most {
			t.Errorf("%s has %d methods", part, part.NumMethod())
		}
	}
	if all := reflect.TypeFor[Host]().NumMethod(); all != total {
		t.Errorf("Host has %d methods, its parts have %d", all, total)
	}
}
