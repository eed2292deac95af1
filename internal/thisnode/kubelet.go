// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/preflight"
)

// KubeletSettings returns this host's kubelet settings, as far as phases need them: config.yaml with the user's patches (or the
// configuration if that file doesn't exist yet), overridden by the files of --config-dir, then by flags:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/
func KubeletSettings(h host.Host, n *config.Node) (*kubelet.KubeletConfiguration, error) {
	path := filepath.Join(n.Paths.Kubelet, "config.yaml")
	data, err := host.ReadIfExists(h, path)
	if err != nil {
		return nil, err
	}
	settings := n.Kubelet.DeepCopy()
	if data != nil {
		settings = kubeletconfig.New()
		if err := yaml.Unmarshal(data, settings); err != nil {
			return nil, errors.Wrapf(err, "%s: not a KubeletConfiguration", path)
		}
	}
	flags := slices.DeleteFunc(effectiveFlags(h, n), func(a config.Arg) bool { return needsSystemd(a.Value) })
	for _, flag := range flags {
		if flag.Name == "config-dir" {
			mergeDropIns(h, atRoot(flag.Value), settings)
		}
	}
	for _, flag := range flags {
		override(settings, flag)
	}
	return settings, nil
}

// KubeletFlags returns this host's kubelet flags, then the configuration's, which may not be known: a name's last flag counts.
func KubeletFlags(h host.Host, n *config.Node) []config.Arg {
	return append(flagsOnHost(h, n.Paths.Kubelet), n.KubeletExtraArgs...)
}

// effectiveFlags adds the flags in administrators' own files, such as KUBELET_EXTRA_ARGS in /etc/default/kubelet, which the
// packages' unit puts last.
func effectiveFlags(h host.Host, n *config.Node) []config.Arg {
	return append(KubeletFlags(h, n), preflight.AdministratorsFlags(h)...)
}

func needsSystemd(value string) bool { return strings.ContainsAny(value, "$%") }

// RegisteredName returns the name under which the kubelet registers its Node, in lower case as the kubelet writes it:
// https://kubernetes.io/docs/concepts/architecture/nodes/
// Several places can set it; the kubelet's certificate shows which name it used.
func RegisteredName(h host.Host, n *config.Node) string {
	names := []string{n.Name}
	shown, unknown := certifiedName(h), false
	for _, flag := range effectiveFlags(h, n) {
		if flag.Name == "hostname-override" {
			names = append(names, strings.ToLower(strings.TrimSpace(flag.Value)))
			unknown = unknown || needsSystemd(flag.Value)
		}
	}
	if shown != "" && (unknown || slices.Contains(names, shown)) {
		return shown
	}
	return names[len(names)-1]
}

// KubeletClientPEM returns the path of the client certificate that the kubelet rotates. Only a flag can move its directory.
func KubeletClientPEM(h host.Host, n *config.Node) string {
	dir := filepath.Join(n.Paths.Kubelet, "pki")
	for _, flag := range effectiveFlags(h, n) {
		if flag.Name == "cert-dir" && !needsSystemd(flag.Value) {
			dir = atRoot(flag.Value)
		}
	}
	return filepath.Join(dir, "kubelet-client-current.pem")
}

// KubeletSocket returns the runtime socket of this host's kubelet, or "" if nothing names it. Its flags override its instance
// configuration, which overrides the cluster's.
func KubeletSocket(h host.Host) string {
	flag, _ := config.LastArg(flagsOnHost(h, config.DefaultKubeletDir), "container-runtime-endpoint") // kubeadm set it up to 1.35
	return cmp.Or(flag, socketIn(h, "instance-config.yaml"), socketIn(h, "config.yaml"))
}

// socketIn returns "" if the file is missing or broken.
func socketIn(h host.Host, file string) string {
	data, err := h.ReadFile(filepath.Join(config.DefaultKubeletDir, file))
	if err != nil {
		return ""
	}
	var cfg struct {
		ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := yaml.Unmarshal(data, &cfg); err != nil {
		return ""
	}
	return cfg.ContainerRuntimeEndpoint
}

// flagsOnHost returns the flags in the kubelet directory's kubeadm-flags.env; none if it's missing.
func flagsOnHost(h host.Host, dir string) []config.Arg {
	data, err := h.ReadFile(filepath.Join(dir, "kubeadm-flags.env"))
	if err != nil {
		return nil
	}
	return ParseFlags(data)
}

// ParseFlags returns the flags in kubeadm-flags.env, in order. It misreads values containing a space or a quote.
func ParseFlags(flagsEnv []byte) []config.Arg {
	var flags []config.Arg
	for word := range strings.FieldsSeq(strings.NewReplacer(`"`, " ", "'", " ").Replace(string(flagsEnv))) {
		if flag, found := strings.CutPrefix(word, "--"); found {
			name, value, _ := strings.Cut(flag, "=")
			flags = append(flags, config.Arg{Name: name, Value: value})
		}
	}
	return flags
}

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
