// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// drains upgrades worker w with --drain. A Pod there stays until the deadline if its disruption budget allows nothing; once
// that is gone, the same command finishes, and the Pod runs elsewhere.
func (m machine) drains(w machine) {
	m.Helper()
	name := w.node.Name()
	m.write("/root/guarded.yaml", strings.NewReplacer("NODE", name, "IMAGE", nodes.ProbeImage).Replace(guardedManifest))
	m.kubectl("apply", "-f", "/root/guarded.yaml")
	m.kubectl("wait", "--for=condition=Available", "deployment/guarded", "--timeout="+readyLimit.String())
	m.prints(name, "get", "pods", "-l", "app=guarded", "-o", "jsonpath={.items[*].spec.nodeName}")

	out, err := w.try("slipway", "upgrade", "node", "--drain", "--drain-timeout=3s")
	if err == nil || !strings.Contains(out, "3s") || !strings.Contains(out, "default/guarded-") {
		m.Errorf("a worker is drained although a disruption budget allows nothing: %v\n%s", err, out)
	}
	m.prints("true", "get", "node", name, "-o", "jsonpath={.spec.unschedulable}")

	m.kubectl("delete", "poddisruptionbudget", "guarded")
	w.runs("slipway", "upgrade", []string{"node", "--drain"})
	m.prints("", "get", "node", name, "-o", "jsonpath={.spec.unschedulable}")
	m.kubectl("wait", "--for=condition=Available", "deployment/guarded", "--timeout="+readyLimit.String())
	m.prints(m.node.Name(), "get", "pods", "-l", "app=guarded", "-o", "jsonpath={.items[*].spec.nodeName}")
	m.kubectl("delete", "deployment", "guarded")
}

// guardedManifest has a Pod that begins on NODE, and that a disruption budget keeps there.
const guardedManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}
      terminationGracePeriodSeconds: 0
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      containers:
      - {name: server, image: IMAGE, imagePullPolicy: Never, args: [serve, ":8080"]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
`
