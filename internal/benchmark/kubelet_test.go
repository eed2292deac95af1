// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/kubeletconfig"
)

// TestKubeletReadsAnotherFile: the settings in config.yaml say nothing about a kubelet that may read another file, or may have more
// flags than the known files.
func TestKubeletReadsAnotherFile(t *testing.T) {
	const dropIn = "/etc/systemd/system/kubelet.service.d/90-own.conf"
	kubespray := "[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\n" +
		"ExecStart=/usr/local/bin/kubelet $KUBE_LOGTOSTDERR $KUBE_LOG_LEVEL $KUBELET_API_SERVER $KUBELET_ARGS\n"
	own := string(kubeletconfig.DropIn("/usr/bin/kubelet"))
	for name, tt := range map[string]struct {
		unit, dropIn string
		want         Status
	}{
		"Slipway's":                          {unit: own, want: Pass},
		"Kubespray's":                        {unit: kubespray, want: Unknown},
		"a drop-in over Kubespray's":         {unit: kubespray, dropIn: strings.Replace(own, "EnvironmentFile=", "EnvironmentFile=\nEnvironmentFile=", 1), want: Pass},
		"an environment file in a drop-in":   {unit: own, dropIn: "[Service]\nEnvironmentFile=/etc/kubelet.env\n", want: Unknown},
		"a variable from elsewhere":          {unit: own, dropIn: "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --config=" + kubeletFile + " ${OURS}\n", want: Unknown},
		"a variable of a drop-in":            {unit: own, dropIn: "[Service]\nEnvironment='OURS=--v=2'\nExecStart=\nExecStart=/usr/bin/kubelet --config=" + kubeletFile + " ${OURS}\n", want: Pass},
		"no --config":                        {unit: "[Service]\nExecStart=/usr/bin/kubelet\n", want: Unknown},
		"another --config in a drop-in":      {unit: own, dropIn: "[Service]\nEnvironment=KUBELET_CONFIG_ARGS=--config=/srv/kubelet.yaml\n", want: Unknown},
		"another --config, across two lines": {unit: own, dropIn: "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config \\\n  /srv/kubelet.yaml\"\n", want: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := hardened(t)
			m.put(t, kubeletUnit, tt.unit)
			if tt.dropIn != "" {
				m.put(t, dropIn, tt.dropIn)
			}
			for id, got := range m.results() {
				if strings.HasPrefix(id, "4.2.") && got.Status != tt.want {
					t.Errorf("%s: %+v", id, got)
				}
			}
		})
	}
	m := hardened(t)
	if err := os.Remove(m.Root + kubeletUnit); err != nil {
		t.Fatal(err)
	}
	if got := m.results()["4.2.4"]; got.Status != Unknown {
		t.Errorf("without a unit: %+v", got)
	}
}
