// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

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
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/preflight"
)

// kubeletSettings are what the kubelet on this host goes by, as far as phases
// have to know: config.yaml as it stands there, with the user's patches, or
// what the configuration says where there is none yet; and over that its flags,
// which count for more:
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/
func kubeletSettings(env *Env) (*kubelet.KubeletConfiguration, error) {
	path := filepath.Join(env.Config.Paths.Kubelet, "config.yaml")
	data, err := readIfExists(env.Host, path)
	if err != nil {
		return nil, err
	}
	settings := env.Config.Kubelet.DeepCopy()
	if data != nil {
		settings = kubeletconfig.New()
		if err := yaml.Unmarshal(data, settings); err != nil {
			return nil, errors.Wrapf(err, "%s holds no KubeletConfiguration", path)
		}
	}
	for _, flag := range effectiveFlags(env) {
		if needsSystemd(flag.Value) {
			continue
		}
		switch flag.Name { // a value that is none keeps the kubelet from starting, which says so
		case "healthz-bind-address":
			settings.HealthzBindAddress = flag.Value
		case "healthz-port":
			if port, err := strconv.ParseInt(flag.Value, 10, 32); err == nil {
				settings.HealthzPort = ptr.To(int32(port))
			}
		case "rotate-certificates":
			if on, err := strconv.ParseBool(cmp.Or(flag.Value, "true")); err == nil {
				settings.RotateCertificates = on
			}
		}
	}
	return settings, nil
}

// kubeletFlags are those that the kubelet on this host has, then those of the
// configuration, which may not be known: the last of a name counts.
func kubeletFlags(env *Env) []config.Arg {
	return append(flagsOnHost(env.Host, env.Config.Paths.Kubelet), env.Config.KubeletExtraArgs...)
}

// effectiveFlags adds the flags in the administrators' own files, such as
// KUBELET_EXTRA_ARGS in /etc/default/kubelet, which the packages' unit puts last.
func effectiveFlags(env *Env) []config.Arg {
	return append(kubeletFlags(env), preflight.AdministratorsFlags(env.Host)...)
}

// needsSystemd reports whether systemd puts something else in place of a value.
func needsSystemd(value string) bool { return strings.ContainsAny(value, "$%") }

// registeredName is the name that the kubelet registers its Node by, in lower
// case as the kubelet has it: https://kubernetes.io/docs/concepts/architecture/nodes/
// Several places can give it another one. Which of them the kubelet has obeyed,
// its certificate says.
func registeredName(env *Env) string {
	names := []string{env.Config.Name}
	shown, unknown := kubeletName(env.Host), false
	for _, flag := range effectiveFlags(env) {
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

// kubeletClientPEM is where the kubelet keeps the client certificate that it
// rotates: in the directory that its flag names, for which there is no setting.
func kubeletClientPEM(env *Env) string {
	dir := filepath.Join(env.Config.Paths.Kubelet, "pki")
	for _, flag := range effectiveFlags(env) {
		if flag.Name == "cert-dir" && !needsSystemd(flag.Value) {
			dir = filepath.Join("/", flag.Value) // systemd starts the kubelet there
		}
	}
	return filepath.Join(dir, "kubelet-client-current.pem")
}
