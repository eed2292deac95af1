// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// TestKubeletOverrides: the last file that has a setting counts, and a flag counts more. The same value in other words overrides nothing.
func TestKubeletOverrides(t *testing.T) {
	for name, test := range map[string]struct {
		files   []string // 1.conf, 2.conf
		flag    string
		setting string
		value   any
		by      string
	}{
		"nothing":                     {nil, "", "maxPods", 200., ""},
		"a file":                      {[]string{"maxPods: 110"}, "", "maxPods", 200., "1.conf"},
		"the same in a file":          {[]string{"maxPods: 200"}, "", "maxPods", 200., ""},
		"another setting":             {[]string{"podsPerCore: 110"}, "", "maxPods", 200., ""},
		"the last file":               {[]string{"maxPods: 110", "maxPods: 90"}, "", "maxPods", 200., "2.conf"},
		"the last file is the same":   {[]string{"maxPods: 110", "maxPods: 200"}, "", "maxPods", 200., ""},
		"false":                       {[]string{"protectKernelDefaults: false"}, "", "protectKernelDefaults", true, "1.conf"},
		"one that goes":               {[]string{"readOnlyPort: 10255"}, "", "readOnlyPort", nil, "1.conf"},
		"below a map":                 {[]string{"authentication: {anonymous: {enabled: true}}"}, "", "authentication anonymous enabled", false, "1.conf"},
		"beside it":                   {[]string{"authentication: {webhook: {enabled: true}}"}, "", "authentication anonymous enabled", false, ""},
		"the same duration":           {[]string{"syncFrequency: 60s"}, "", "syncFrequency", "1m0s", ""},
		"a flag":                      {nil, "max-pods=110", "maxPods", 200., "--max-pods"},
		"a flag over a file":          {[]string{"maxPods: 110"}, "max-pods=200", "maxPods", 200., ""},
		"a flag with underscores":     {nil, "max_pods=110", "maxPods", 200., "--max-pods"},
		"a flag with capitals":        {nil, "kube-api-qps=5", "kubeAPIQPS", 50., "--kube-api-qps"},
		"a flag without a value":      {nil, "protect-kernel-defaults=", "protectKernelDefaults", true, ""},
		"a flag with a variable":      {nil, "max-pods=$PODS", "maxPods", 200., "--max-pods"},
		"a flag with another name":    {nil, "anonymous-auth=true", "authentication anonymous enabled", false, "--anonymous-auth"},
		"a flag of a list":            {nil, "cluster-dns=10.96.0.10,10.96.0.11", "clusterDNS", []any{"10.96.0.10", "10.96.0.11"}, ""},
		"a flag of a map":             {nil, "eviction-hard=memory.available<1Gi,nodefs.available<5%", "evictionHard memory.available", "500Mi", "--eviction-hard"},
		"the same in a map":           {nil, "eviction-hard=memory.available<1Gi,nodefs.available<5%", "evictionHard nodefs.available", "5%", ""},
		"a map that lacks it":         {nil, "eviction-hard=memory.available<1Gi", "evictionHard nodefs.available", "5%", "--eviction-hard"},
		"gates, which lack it":        {nil, "feature-gates=A=true", "featureGates B", true, ""},
		"gates":                       {nil, "feature-gates=A=true,B=false", "featureGates B", true, "--feature-gates"},
		"a flag of something similar": {nil, "max-open-files=110", "maxPods", 200., ""},
	} {
		t.Run(name, func(t *testing.T) {
			var o KubeletOverrides
			for i, text := range test.files {
				d := dropIn{path: []string{"1.conf", "2.conf"}[i]}
				if err := yaml.Unmarshal([]byte(text), &d.settings); err != nil {
					t.Fatal(err)
				}
				o.dropIns = append(o.dropIns, d)
			}
			if flag, value, given := strings.Cut(test.flag, "="); given {
				o.flags = flagsFrom([]config.Arg{{Name: flag, Value: value}}, "/etc/default/kubelet")
			}
			if by, _, _ := strings.Cut(o.Of(strings.Fields(test.setting), test.value), " in "); by != test.by {
				t.Errorf("overridden by %q, want %q", by, test.by)
			}
		})
	}
}
