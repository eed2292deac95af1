// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"

	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// override puts a kubelet flag over its settings. The kubelet itself refuses invalid values.
func override(settings *kubelet.KubeletConfiguration, flag config.Arg) {
	on, err := strconv.ParseBool(cmp.Or(flag.Value, "true"))
	isBool := err == nil
	switch flag.Name {
	case "healthz-bind-address":
		settings.HealthzBindAddress = flag.Value
	case "healthz-port":
		if port, err := strconv.ParseInt(flag.Value, 10, 32); err == nil {
			settings.HealthzPort = ptr.To(int32(port))
		}
	case "rotate-certificates":
		settings.RotateCertificates = isBool && on || !isBool && settings.RotateCertificates
	case "rotate-server-certificates":
		settings.ServerTLSBootstrap = isBool && on || !isBool && settings.ServerTLSBootstrap
	case "tls-cert-file":
		settings.TLSCertFile = atRoot(flag.Value)
	case "client-ca-file":
		settings.Authentication.X509.ClientCAFile = atRoot(flag.Value)
	}
}

// atRoot resolves a flag's path: systemd starts the kubelet in /.
func atRoot(value string) string {
	if value == "" {
		return ""
	}
	return filepath.Join("/", value)
}

// mergeDropIns reads the *.conf files below a directory, sorted by path, as the kubelet does:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-configuration-drop-in-files
func mergeDropIns(h host.Host, dir string, settings *kubelet.KubeletConfiguration) {
	entries, _ := h.ReadDir(dir) // a missing directory has no settings
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			mergeDropIns(h, path, settings)
			continue
		}
		merged := settings.DeepCopy()
		data, err := h.ReadFile(path)
		if err == nil && filepath.Ext(path) == ".conf" && yaml.Unmarshal(data, merged) == nil {
			*settings = *merged
		}
	}
}

// ExpandedFlags are the kubelet's flags with the given names whose values only systemd knows, because it expands them.
func ExpandedFlags(h host.Host, n *config.Node, names ...string) []config.Arg {
	return slices.DeleteFunc(effectiveFlags(h, n), func(a config.Arg) bool { return !needsSystemd(a.Value) || !slices.Contains(names, a.Name) })
}
