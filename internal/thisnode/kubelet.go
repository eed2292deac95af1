// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
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
	flags := slices.DeleteFunc(effectiveFlags(h, n), func(f KubeletFlag) bool { return needsSystemd(f.Value) })
	EachDropIn(h, flags, func(_ string, doc []byte) {
		if merged := settings.DeepCopy(); yaml.Unmarshal(doc, merged) == nil {
			*settings = *merged
		}
	})
	for _, flag := range flags {
		override(settings, flag.Arg)
	}
	return settings, nil
}

// KubeletFlags returns this host's kubelet flags, then the configuration's, which may not be known: a name's last flag counts.
func KubeletFlags(h host.Host, n *config.Node) []config.Arg {
	return append(flagsOnHost(h, n.Paths.Kubelet), n.KubeletExtraArgs...)
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
	return cmp.Or(socketInFlags(h), socketIn(h, "instance-config.yaml"), socketIn(h, "config.yaml"))
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

// socketInFlags reads the flag kubeadm set up to 1.35.
func socketInFlags(h host.Host) string {
	socket := ""
	for _, flag := range flagsOnHost(h, config.DefaultKubeletDir) {
		if flag.Name == "container-runtime-endpoint" {
			socket = flag.Value
		}
	}
	return socket
}

// flagsOnHost returns the flags in the kubelet directory's kubeadm-flags.env; none if it's missing.
func flagsOnHost(h host.Reader, dir string) []config.Arg {
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
