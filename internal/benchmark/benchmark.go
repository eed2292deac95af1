// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package benchmark checks this node against the CIS Kubernetes Benchmark. Run returns a Result per item. Each area has a file
// with its table: control_plane.go, kubelet.go, files.go. It reads only this host's files. docs/hardening.md describes the
// output.
package benchmark

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// Version is the version of the benchmark that numbers the items.
const Version = "1.11"

// Status is what a check found out.
type Status string

// Unknown isn't Pass: the check couldn't look.
const (
	Pass    Status = "pass"
	Fail    Status = "fail"
	Unknown Status = "unknown"
)

// Result is an item on this node.
type Result struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	// Subject is what was looked at: a component and its flags, a field, or files.
	Subject string `json:"subject"`
	// Found is the present value, Want the value the item asks for.
	Found string `json:"found"`
	Want  string `json:"want"`
}

// answer is the part of a Result found by a check.
type answer struct {
	status Status
	found  string
}

func unknown(why string) answer { return answer{Unknown, why} }

func verdict(ok bool, found string) answer {
	if ok {
		return answer{Pass, found}
	}
	return answer{Fail, found}
}

// row is an item.
type row struct {
	id, subject, want string
	look              func(*observation) answer
}

// observation is this node as the checks see it.
type observation struct {
	host    host.Host
	machine *config.Machine
	pods    map[string]*corev1.Pod // of the control plane, by component; nil for an unreadable one
}

// Run returns the items of this node in the order of their numbers: a control plane's or a worker's. m has the host's paths.
func Run(h host.Host, m *config.Machine) []Result {
	o := &observation{host: h, machine: m, pods: map[string]*corev1.Pod{}}
	rows := kubeletRows()
	rows = append(rows, kubeletFileRows(o)...)
	if o.isControlPlane() {
		names := []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName}
		if thisnode.ExternalEtcd(h, m.Paths) == nil {
			names = append(names, manifests.EtcdName)
			rows = append(append(rows, etcdRows()...), etcdFileRows()...)
		}
		for _, name := range names {
			o.pods[name], _ = thisnode.StaticPod(h, m.Paths.StaticPod(name))
		}
		rows = slices.Concat(rows, controlPlaneRows(), controlPlaneFileRows())
	}
	var results []Result
	for _, r := range rows {
		a := r.look(o)
		results = append(results, Result{r.id, a.status, r.subject, a.found, r.want})
	}
	slices.SortStableFunc(results, func(a, b Result) int { return compareIDs(a.ID, b.ID) })
	return results
}

// isControlPlane also recognizes a control plane without its API server's static Pod, whose items are then unknown. A worker may
// have a copy of admin.conf, and a host with etcd alone has etcd's static Pod.
func (o *observation) isControlPlane() bool {
	p := o.machine.Paths
	traces := []string{filepath.Join(p.PKI, "ca.key")}
	for _, component := range []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		traces = append(traces, p.StaticPod(component))
	}
	return slices.ContainsFunc(traces, func(path string) bool {
		_, err := o.host.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// compareIDs orders 1.2.9 before 1.2.10.
func compareIDs(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		i, _ := strconv.Atoi(x)
		j, _ := strconv.Atoi(y)
		return cmp.Compare(i, j)
	})
}

func (o *observation) manifest(component string) string {
	return o.machine.Paths.StaticPod(component)
}
