// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
)

var update = flag.Bool("update", false, "write the table of docs/preflight.md again")

const (
	tablePath  = "../docs/preflight.md"
	tableBegin = "<!-- The table is made by `go test ./preflight -run Docs -update`. -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// TestDocsListEveryCheck compares docs/preflight.md with the existing checks.
func TestDocsListEveryCheck(t *testing.T) {
	data, err := os.ReadFile(tablePath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	have, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s has no place for the table", tablePath)
	}
	want := table(t)
	if *update {
		if err := os.WriteFile(tablePath, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("go test ./preflight -run Docs -update writes the table again (-want +have):\n%s", diff)
	}
}

func table(t *testing.T) string {
	local, external, joined, worker := controlPlaneNode(), controlPlaneNode(), joiningControlPlane(), workerNode()
	external.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}}
	local.NetworkAddOn.Name = config.Flannel
	for _, n := range []*config.Node{local, external, joined, worker} {
		n.Cluster.Networking.ServiceSubnet = "10.96.0.0/16,fd00:2::/112"
	}
	leftovers := []Leftover{{Path: "/etc/kubernetes/kubelet.conf"}, {Path: "/etc/kubernetes/bootstrap-kubelet.conf"}, {Path: "/etc/kubernetes/pki/ca.crt"}}
	images := Images(local, nil, nil, nil)
	byCommand := [][]Check{
		slices.Concat(Init(local, nil), Init(external, nil), []Check{images, Configuration(nil)}),
		append(JoinControlPlane(joined, leftovers), images),
		JoinWorker(worker, leftovers),
		Reset(local.Paths),
		append(Prepare(&config.Machine{}, Preparation{Runtime: HostRuntime{Installed: true, Running: true}, Sizes: map[string]uint64{
			"/usr/local/bin": 1, "/opt/cni/bin": 1, "/var/lib/containerd": 1,
		}}), BundledKubelet("v1.37.2", "v1.37.2", nil)),
		HostReset(nil),
	}
	var b strings.Builder
	b.WriteString("| name | what is checked | init | join --control-plane | join | reset | host prepare | host reset |\n|---|---|---|---|---|---|---|---|\n")
	var done []string
	for _, c := range slices.Concat(byCommand...) {
		same := func(other Check) bool { return other.Name == c.Name && other.Description == c.Description }
		if slices.Contains(done, c.Name+c.Description) {
			continue
		}
		done = append(done, c.Name+c.Description)
		if c.Description == "" {
			t.Errorf("check %s does not say what it checks", c.Name)
		}
		fmt.Fprintf(&b, "| `%s` | %s |", c.Name, c.Description)
		for _, list := range byCommand {
			mark := " "
			if slices.ContainsFunc(list, same) {
				mark = " x "
			}
			b.WriteString(mark + "|")
		}
		b.WriteString("\n")
	}
	return b.String()
}
