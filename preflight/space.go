// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/internal/config"
)

// need is what a folder's file system must have free, and should have.
type need struct {
	least, good uint64 // bytes
	// signal is the kubelet's name of the file system, by whose thresholds it
	// evicts Pods; empty for one that it does not watch.
	signal string
	what   string
}

// leastInodes is about what a control plane's images and folders hold.
const leastInodes = 5000

func etcdNeed() need {
	// Two segments of the log are allocated at the start, 64 MB each; the
	// default quota of the data is 2 GiB:
	// https://etcd.io/docs/v3.5/op-guide/maintenance/#space-quota
	return need{least: 200 << 20, good: 2 << 30, what: "etcd's data"}
}

func kubeletNeed() need {
	return need{least: 100 << 20, good: 1 << 30, signal: "nodefs", what: "the Pods' volumes and logs"}
}

func runtimeNeed() need {
	return need{least: 500 << 20, good: 2 << 30, signal: "imagefs", what: "images and containers"}
}

func kubernetesNeed() need {
	return need{least: 10 << 20, good: 50 << 20, what: "certificates, kubeconfigs and static Pods"}
}

// space looks at the file system on which dir is, or will be.
func space(n *config.Node, dir string, needs need) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding { return spaceOf(n, h, dir, needs) }
}

// runtimeSpace asks the runtime where it keeps images. One that does not
// answer is for the check CRI.
func runtimeSpace(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		dir, err := h.ImageDir(ctx, n.CRISocket)
		if err != nil || dir == "" {
			return skip("the container runtime does not say where it keeps images: see CRI")
		}
		return spaceOf(n, h, dir, runtimeNeed())
	}
}

func spaceOf(n *config.Node, h View, dir string, needs need) []Finding {
	at := folderOf(h, dir)
	s, err := h.Space(at)
	if err != nil {
		return warn("%v", err)
	}
	where := fmt.Sprintf("the file system of %s, for %s, has %s free", at, needs.what, size(s.Free))
	const mend = "free some, or mount a larger disk there"
	switch reserve, from := evicts(n, needs.signal+".available", s.Total); {
	case s.Free < needs.least:
		return fault("%s; at least %s are needed: %s", where, size(needs.least), mend)
	case s.TotalInodes > 0 && s.FreeInodes < leastInodes:
		return fault("the file system of %s, for %s, has %d inodes free; at least %d are needed: remove small files, or mount another disk there", at, needs.what, s.FreeInodes, leastInodes)
	case needs.signal != "" && s.Free < reserve:
		return warn("%s, less than the %s at which the kubelet evicts Pods (%s): %s", where, size(reserve), from, mend)
	case s.Free < needs.good:
		return warn("%s, which is little; %s are good to have: %s", where, size(needs.good), mend)
	}
	if reserve, from := evicts(n, needs.signal+".inodesFree", s.TotalInodes); needs.signal != "" && s.FreeInodes < reserve {
		return warn("the file system of %s, for %s, has %d inodes free, less than the %d at which the kubelet evicts Pods (%s): remove small files, or mount another disk there", at, needs.what, s.FreeInodes, reserve, from)
	}
	return nil
}

// evicts is the kubelet's hard threshold of a signal, of a file system with
// total bytes or inodes, and where it comes from:
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds
func evicts(n *config.Node, signal string, total uint64) (limit uint64, from string) {
	text, given := n.Kubelet.EvictionHard[signal]
	from = "evictionHard " + signal
	switch {
	case given:
	case len(n.Kubelet.EvictionHard) > 0 && (n.Kubelet.MergeDefaultEvictionSettings == nil || !*n.Kubelet.MergeDefaultEvictionSettings):
		return 0, "" // naming any replaces all of the defaults
	case signal == "nodefs.available":
		text = "10%"
	case signal == "imagefs.available":
		text = "15%"
	default:
		text = "5%"
	}
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, _ := strconv.ParseFloat(percent, 64)
		return uint64(float64(total) * f / 100), from + " " + text
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 0 {
		return 0, "" // the kubelet will say so
	}
	return uint64(q.Value()), from + " " + text
}

func size(bytes uint64) string {
	if bytes < 10<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d GiB", bytes>>30)
}
