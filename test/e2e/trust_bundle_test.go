// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
)

// Secrets of a shop that runs on the node. Except for the last ones, neither their names nor their looks give them
// away.
var shopSecrets = map[string]string{
	"/etc/default/kubelet": `# SHOP="one-canary-a
# one-canary-b"
export SHOP_A='two-canary words' # three-canary
SHOP_PATH=four-canary
SHOP_B=a \
five-canary
KUBELET_EXTRA_ARGS="--v=2 --manifest-url-header=X:six-canary seven-canary"
`,
	"/etc/systemd/system/kubelet.service.d/90-shop.conf": `[Service]
Environment=GOMAXPROCS=2 SHOP_C=eight-canary "SHOP_D=nine-canary ten-canary" LANG=C
Environment=TZ=UTC \
# SHOP_F=eleven-canary
  SHOP_E=twelve-canary \
  SHOP_ARGS=thirteen-canary
ExecStartPre=-/bin/sh -c 'SHOP_G=fourteen-canary true'
`,
	"/etc/hosts": `127.0.0.1 localhost
# curl -H 'Cookie: shop="fifteen-canary"' -H "X-Auth-Token: sixteen-canary" https://shop.example.org
# https://seventeen-canary@git.example.org and AKIA` + `EIGHTEENCANARY22 and glpat-` + `nineteen-canary-12345
`,
}

// bundleIsSafe: a support bundle has nobody's secrets by default, and has the logs of applications only on request.
func bundleIsSafe(m machine) {
	const logged = "logged-by-the-shop"
	m.runsShop(logged)
	const aside = "/root/before-the-shop.tar"
	kept := []string{"/etc/hosts", "/etc/default/kubelet"}
	m.must(append([]string{"tar", "--create", "--absolute-names", "--file", aside}, kept...)...)
	for path, text := range shopSecrets {
		m.write(path, text)
	}
	text := m.bundle()
	for _, shown := range []string{"KUBELET_EXTRA_ARGS=\"--v=2 ", "GOMAXPROCS=2", "LANG=C", "TZ=UTC", "SHOP_E=[redacted]", "kube-apiserver", "/shop"} {
		if !strings.Contains(text, shown) {
			m.Errorf("the bundle lacks %q", shown)
		}
	}
	if strings.Contains(text, logged) {
		m.Error("the bundle holds the log of an application")
	}
	m.noCanary(text)
	all := m.bundle("--all-namespaces")
	if !strings.Contains(all, logged) {
		m.Error("with --all-namespaces, the log of an application is missing")
	}
	m.noCanary(all)
	m.must("tar", "--extract", "--absolute-names", "--file", aside)
	m.must("rm", "-r", "/etc/systemd/system/kubelet.service.d")
	m.kubectl("delete", "-f", "/root/shop.yaml")
}

func (m machine) noCanary(text string) {
	m.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), "canary") {
			m.Errorf("the bundle shows a secret: %s", line)
		}
	}
}

// runsShop runs an application that logs a word and exits.
func (m machine) runsShop(logged string) {
	m.Helper()
	image := m.kubectl("get", "pod", "-n", "kube-system", "kube-scheduler-cp-1", "-o", "jsonpath={.spec.containers[0].image}")
	m.write("/root/shop.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: shop, namespace: default},
spec: {nodeName: cp-1, hostNetwork: true, restartPolicy: Never, automountServiceAccountToken: false,
containers: [{name: shop, image: %q, imagePullPolicy: IfNotPresent, command: [kube-scheduler, --%s]}]}}
`, image, logged))
	m.eventually("the shop to be made", readyLimit, func() error { // its service account must exist first
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "apply", "-f", "/root/shop.yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.eventually("the shop to have logged", readyLimit, func() error {
		out, _ := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "logs", "shop")
		if !strings.Contains(out, logged) {
			return errors.New(out)
		}
		return nil
	})
}

// bundle returns the text of all files of a support bundle.
func (m machine) bundle(flags ...string) string {
	m.Helper()
	m.must(append([]string{"slipway", "support-bundle", "--file=/root/bundle.tar.gz"}, flags...)...)
	return m.must("tar", "-xzOf", "/root/bundle.tar.gz")
}
