// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
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
	for _, flag := range kubeletFlags(env) {
		switch flag.Name { // a value that is none keeps the kubelet from starting, which says so
		case "healthz-bind-address":
			settings.HealthzBindAddress = flag.Value
		case "healthz-port":
			if port, err := strconv.ParseInt(flag.Value, 10, 32); err == nil {
				settings.HealthzPort = ptr.To(int32(port))
			}
		case "rotate-certificates":
			if on, err := strconv.ParseBool(flag.Value); err == nil {
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

// registeredName is the name that the kubelet registers its Node by, in lower
// case as the kubelet has it: https://kubernetes.io/docs/concepts/architecture/nodes/
func registeredName(env *Env) string {
	name := env.Config.Name
	for _, flag := range kubeletFlags(env) {
		if flag.Name == "hostname-override" {
			name = flag.Value
		}
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// kubeletClientPEM is where the kubelet keeps the client certificate that it
// rotates: in the directory that its flag names, for which there is no setting.
func kubeletClientPEM(env *Env) string {
	dir := filepath.Join(env.Config.Paths.Kubelet, "pki")
	for _, flag := range kubeletFlags(env) {
		if flag.Name == "cert-dir" {
			dir = filepath.Join("/", flag.Value) // systemd starts the kubelet there
		}
	}
	return filepath.Join(dir, "kubelet-client-current.pem")
}
