// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"io/fs"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var (
	sandboxRefused = lazyregexp.New(`CreatePodSandboxError|Failed to create sandbox for pod|Failed to generate sandbox config|RunPodSandbox from runtime service failed`)
	// ofPodNetwork matches complaints of a Pod network that isn't configured yet: they pass once its Pod runs.
	ofPodNetwork = lazyregexp.New(`[Ff]ailed to (?:setup|set up) network for sandbox|plugin type=|cni plugin|CNI`)
	missingFile  = lazyregexp.New(`open (/[^\s":\\]*resolv[^\s":\\]*): no such file or directory`)
)

// podSandbox finds problems that keep every Pod from starting. The sandbox's image and the cgroup driver are causes of their own.
func podSandbox(o *observation) []symptom {
	unknown := func(line string) bool {
		return sandboxFailed().MatchString(line) || cgroupDriverRefused().MatchString(line) || ofPodNetwork().MatchString(line)
	}
	f := symptom{Finding: fault.Finding{Subject: "every Pod's sandbox"}}
	for _, line := range slices.Backward(o.recentLines(o.sources[0], sandboxRefused)) {
		m := missingFile().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if _, err := o.h.Stat(m[1]); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f.Evidence, f.minDuration = []string{line}, time.Second
		f.Message = "the kubelet gives Pods the name servers in " + m[1] + ", which does not exist on this host, so no Pod can start"
		f.Remedy = "set resolvConf in the KubeletConfiguration (ConfigMap kube-system/kubelet-config, or a patch for this node) to a file that exists, or create this one"
		return []symptom{f}
	}
	lines := slices.DeleteFunc(o.repeatedLines(o.sources[0], sandboxRefused), func(line string) bool { return passing().MatchString(line) || unknown(line) })
	if len(lines) == 0 {
		return nil
	}
	f.Evidence, f.minDuration = last(lines, 1), 2*time.Second
	f.Message = "the container runtime cannot create the sandboxes that Pods' containers run in"
	f.Remedy = "see the runtime's message, and its journal (`journalctl -u " + host.RuntimeService(o.t.Socket) + "`)"
	return []symptom{f}
}
