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
)

// KubeletSettings returns this host's kubelet settings, as far as phases need them: config.yaml with the user's patches (or the
// configuration if that file doesn't exist yet), overridden by the files of --config-dir, then by flags:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/
func KubeletSettings(h host.Host, m *config.Machine) (*kubelet.KubeletConfiguration, error) {
	path := m.Paths.KubeletConfig()
	data, err := host.ReadIfExists(h, path)
	if err != nil {
		return nil, err
	}
	settings := m.Kubelet.DeepCopy()
	if data != nil {
		settings = kubeletconfig.New()
		if err := yaml.Unmarshal(data, settings); err != nil {
			return nil, errors.Wrapf(err, "%s: not a KubeletConfiguration", path)
		}
	}
	flags := slices.DeleteFunc(EffectiveFlags(h, m), func(f KubeletFlag) bool { return NeedsSystemd(f.Value) })
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

// NeedsSystemd reports whether a value in a unit's file has variables or specifiers, which only systemd can resolve.
func NeedsSystemd(value string) bool { return strings.ContainsAny(value, "$%") }

// RegisteredName returns the name under which the kubelet registers its Node, in lower case as the kubelet writes it:
// https://kubernetes.io/docs/concepts/architecture/nodes/
// Several places can set it; the kubelet's certificate shows which name it used.
func RegisteredName(h host.Host, n *config.Node) string {
	names := []string{n.Name}
	shown, unknown := certifiedName(h), false
	for _, flag := range EffectiveFlags(h, &n.Machine) {
		if flag.Name == "hostname-override" {
			names = append(names, strings.ToLower(strings.TrimSpace(flag.Value)))
			unknown = unknown || NeedsSystemd(flag.Value)
		}
	}
	if shown != "" && (unknown || slices.Contains(names, shown)) {
		return shown
	}
	return names[len(names)-1]
}

// KubeletClientPEM returns the path of the client certificate that the kubelet rotates. Only a flag can move its directory.
func KubeletClientPEM(h host.Host, m *config.Machine) string {
	dir := filepath.Join(m.Paths.Kubelet, "pki")
	for _, flag := range EffectiveFlags(h, m) {
		if flag.Name == "cert-dir" && !NeedsSystemd(flag.Value) {
			dir = atRoot(flag.Value)
		}
	}
	return filepath.Join(dir, "kubelet-client-current.pem")
}

// KubeletServingPEM returns the path of the serving certificate, with its key, that a kubelet with serverTLSBootstrap gets from the
// cluster.
func KubeletServingPEM(h host.Host, m *config.Machine) string {
	return filepath.Join(filepath.Dir(KubeletClientPEM(h, m)), "kubelet-server-current.pem")
}

// KubeletSocket returns the runtime socket of this host's kubelet, or "" if nothing names it. Its flags, the administrators' last,
// override its instance configuration, which overrides the cluster's.
func KubeletSocket(h host.Host) string {
	env, _ := h.ReadFile(filepath.Join(config.DefaultKubeletDir, kubeadmFlags))
	flag := ""
	for _, f := range append(KubeadmFlags(env), AdministratorsFlags(h)...) {
		if f.Name == "container-runtime-endpoint" && !NeedsSystemd(f.Value) { // kubeadm set it up to 1.35
			flag = f.Value
		}
	}
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

// override puts a kubelet flag over its settings. The kubelet itself refuses invalid values.
func override(settings *kubelet.KubeletConfiguration, flag config.Arg) {
	switch flag.Name {
	case "healthz-bind-address":
		settings.HealthzBindAddress = flag.Value
	case "healthz-port":
		if port, err := strconv.ParseInt(flag.Value, 10, 32); err == nil {
			settings.HealthzPort = ptr.To(int32(port))
		}
	case "tls-cert-file":
		settings.TLSCertFile = atRoot(flag.Value)
	case "client-ca-file":
		settings.Authentication.X509.ClientCAFile = atRoot(flag.Value)
	case "cgroup-driver":
		settings.CgroupDriver = flag.Value
	case "resolv-conf":
		settings.ResolverConfig = &flag.Value
	}
	if on, err := strconv.ParseBool(cmp.Or(flag.Value, "true")); err == nil {
		turn(settings, flag.Name, on)
	}
}

// turn is override for a flag that's on or off.
func turn(settings *kubelet.KubeletConfiguration, flag string, on bool) {
	switch flag {
	case "rotate-certificates":
		settings.RotateCertificates = on
	case "rotate-server-certificates":
		settings.ServerTLSBootstrap = on
	case "protect-kernel-defaults":
		settings.ProtectKernelDefaults = on
	case "fail-swap-on":
		settings.FailSwapOn = &on
	case "fail-cgroupv1":
		settings.FailCgroupV1 = &on
	case "register-node":
		settings.RegisterNode = &on
	}
}

// atRoot resolves a flag's path: systemd starts the kubelet in /.
func atRoot(value string) string {
	if value == "" {
		return ""
	}
	return filepath.Join("/", value)
}

// KubeletFlag is a flag of the kubelet, with dashes for underscores, and the file or field that sets it.
type KubeletFlag struct {
	config.Arg
	From string

	variable string // whose value has it, if any
}

const kubeadmFlags = "kubeadm-flags.env"

// EffectiveFlags returns the flags in kubeadm-flags.env, and then ConfiguredFlags: a name's last flag counts.
func EffectiveFlags(h host.Reader, m *config.Machine) []KubeletFlag {
	env, _ := h.ReadFile(filepath.Join(m.Paths.Kubelet, kubeadmFlags)) // it needn't exist
	return append(KubeadmFlags(env), ConfiguredFlags(h, m)...)
}

// KubeadmFlags returns the flags in the content of kubeadm-flags.env, in order. It misreads values containing a space or a quote.
func KubeadmFlags(env []byte) []KubeletFlag { return assign(nil, unitLines(env), kubeadmFlags) }

// ConfiguredFlags returns the configuration's flags, then the administrators', which the packages' unit puts last.
func ConfiguredFlags(h host.Reader, m *config.Machine) []KubeletFlag {
	return append(flagsFrom(m.KubeletExtraArgs, "nodeRegistration.kubeletExtraArgs"), AdministratorsFlags(h)...)
}

func flagsFrom(args []config.Arg, from string) []KubeletFlag {
	var flags []KubeletFlag
	for _, a := range args {
		a.Name = strings.ReplaceAll(a.Name, "_", "-") // the kubelet takes both
		flags = append(flags, KubeletFlag{Arg: a, From: from})
	}
	return flags
}

// flagsIn finds the flags in a unit's drop-in or an environment file, quoted or not. It needn't be exact: a unit may combine them
// in any way.
func flagsIn(text []byte) []config.Arg {
	var flags []config.Arg
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		words := words(line)
		for i, w := range words {
			at := strings.Index(w, "--")
			if at < 0 || at > 0 && w[at-1] != '=' {
				continue
			}
			name, value, given := strings.Cut(w[at+2:], "=")
			if !given && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				value = words[i+1]
			}
			flags = append(flags, config.Arg{Name: name, Value: value})
		}
	}
	return flags
}

// EachDropIn visits the *.conf files below the directories of --config-dir, in the order in which the kubelet merges them:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-configuration-drop-in-files
func EachDropIn(h host.Reader, flags []KubeletFlag, visit func(path string, doc []byte)) {
	for _, f := range flags {
		if f.Name == "config-dir" {
			eachConf(h, atRoot(f.Value), visit)
		}
	}
}

func eachConf(h host.Reader, dir string, visit func(path string, doc []byte)) {
	entries, _ := h.ReadDir(dir) // a missing directory has no settings
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			eachConf(h, path, visit)
		} else if doc, err := h.ReadFile(path); err == nil && filepath.Ext(path) == ".conf" {
			visit(path, doc)
		}
	}
}

// ExpandedFlags are the kubelet's flags with the given names whose values only systemd knows, because it expands them.
func ExpandedFlags(h host.Host, m *config.Machine, names ...string) []KubeletFlag {
	return slices.DeleteFunc(EffectiveFlags(h, m), func(f KubeletFlag) bool { return !NeedsSystemd(f.Value) || !slices.Contains(names, f.Name) })
}
