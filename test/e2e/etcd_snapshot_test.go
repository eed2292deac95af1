// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"strings"

	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/test/fact"
)

// savesEtcd takes snapshots, lists, verifies and prunes them.
func (m machine) savesEtcd() {
	m.Helper()
	defer m.must("sh", "-c", "rm -r "+snapshots.Dir+"; rmdir --ignore-fail-on-non-empty /var/lib/slipway")
	first := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--in-turn"))
	second := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save"))
	fact.List(m.T, strings.Split(strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "verify")), "\n"), first, second)

	var list struct{ Items []snapshots.Snapshot }
	if err := json.Unmarshal([]byte(m.must("slipway", "etcd", "snapshot", "list", "-o", "json")), &list); err != nil || len(list.Items) != 2 {
		m.Fatalf("%+v, %v", list, err)
	}
	for _, s := range list.Items {
		if s.Revision < 100 || s.Keys < 100 || s.Kubernetes == "" || s.Etcd == "" || len(s.Authorities) != 3 || len(s.Members) != 1 || len(s.Unknown) > 0 {
			m.Errorf("%+v", s)
		}
	}
	sum, _, _ := strings.Cut(m.must("sha256sum", second), " ")
	if sum != list.Items[1].SHA256 || second != list.Items[1].Path {
		m.Errorf("%s has the SHA-256 %s; the record: %+v", second, sum, list.Items[1])
	}
	m.must("slipway", "etcd", "snapshot", "prune", "--keep=1", "--keep-days=0")
	fact.List(m.T, strings.Fields(m.must("ls", snapshots.Dir)), second[len(snapshots.Dir)+1:], snapshots.RecordPath(second)[len(snapshots.Dir)+1:])

	m.must("truncate", "--size=-1", second)
	out, err := m.try("slipway", "etcd", "snapshot", "verify")
	fact.In(m.T, out, second)
	if err == nil {
		m.Errorf("a shortened snapshot is whole:\n%s", out)
	}
}
