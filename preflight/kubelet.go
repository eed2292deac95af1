// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"strconv"

	"github.com/pkg/errors"
	kubeletapi "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

const kubeletUnit = "kubelet.service"

// kubeletService checks that the unit can start, now and after a reboot. Without systemd, the kubelet may run in another way.
func kubeletService(ctx context.Context, h View, n *config.Node) []fault.Finding {
	unit, err := h.Unit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		return warn("%v", err).remedy("start the kubelet in another way")
	}
	if err != nil {
		return warn("cannot ask systemd about %s: %v", kubeletUnit, err).remedy("check it with `systemctl status %s`", kubeletUnit)
	}
	switch {
	case unit.LoadState == "not-found":
		return fail("systemd has no unit %s", kubeletUnit).remedy("install the kubelet's package, or its unit and drop-in")
	case unit.LoadState == "masked":
		return fail("%s is masked, so it cannot be started", kubeletUnit).remedy("run `systemctl unmask %s`", kubeletUnit)
	case unit.LoadState != "loaded":
		return fail("systemd cannot load %s (%s)", kubeletUnit, unit.LoadState).remedy("see `systemctl status %s`", kubeletUnit)
	case unit.UnitFileState == "disabled" && !n.EnableKubelet:
		return warn("%s is not enabled, so the kubelet will not start after a reboot", kubeletUnit).
			remedy("run `systemctl enable %s`", kubeletUnit)
	}
	return nil
}

// kubeletSettings decide whether a kubelet starts and creates containers, as it will read them: the Node's KubeletConfiguration,
// overridden by the files of --config-dir, overridden by its flags. Each says where it comes from.
type kubeletSettings struct {
	failSwapOn, failCgroupV1, protectKernelDefaults setting[bool]
	cgroupDriver, resolvConf                        setting[string]
}

type setting[T any] struct {
	value T
	from  string
}

const kubeletDefault = "the kubelet's default"

// effectiveKubelet returns the settings that will apply once this run has written its files. Flags count in the order of the
// packages' unit: this configuration's, then those in the administrator's own files.
func effectiveKubelet(m *config.Machine, h View) kubeletSettings {
	s := kubeletSettings{
		failSwapOn:   setting[bool]{true, kubeletDefault},
		failCgroupV1: setting[bool]{true, kubeletDefault},
		cgroupDriver: setting[string]{"cgroupfs", kubeletDefault},
		resolvConf:   setting[string]{"/etc/resolv.conf", kubeletDefault},
	}
	s.merge(m.Kubelet, "the KubeletConfiguration")
	flags := thisnode.ConfiguredFlags(h, m)
	thisnode.EachDropIn(h, flags, func(path string, doc []byte) {
		c := kubeletapi.KubeletConfiguration{ProtectKernelDefaults: s.protectKernelDefaults.value} // which a file needn't have
		if yaml.Unmarshal(doc, &c) == nil {
			s.merge(c, path)
		}
	})
	for _, f := range flags {
		s.flag(f)
	}
	return s
}

func (s *kubeletSettings) merge(c kubeletapi.KubeletConfiguration, from string) {
	if c.FailSwapOn != nil {
		s.failSwapOn = setting[bool]{*c.FailSwapOn, "failSwapOn in " + from}
	}
	if c.FailCgroupV1 != nil {
		s.failCgroupV1 = setting[bool]{*c.FailCgroupV1, "failCgroupV1 in " + from}
	}
	if c.ProtectKernelDefaults != s.protectKernelDefaults.value {
		s.protectKernelDefaults = setting[bool]{c.ProtectKernelDefaults, "protectKernelDefaults in " + from}
	}
	if c.CgroupDriver != "" {
		s.cgroupDriver = setting[string]{c.CgroupDriver, "cgroupDriver in " + from}
	}
	if c.ResolverConfig != nil {
		s.resolvConf = setting[string]{*c.ResolverConfig, "resolvConf in " + from}
	}
}

func (s *kubeletSettings) flag(f thisnode.KubeletFlag) {
	from := "--" + f.Name + " in " + f.From
	on, err := strconv.ParseBool(cmp.Or(f.Value, "true"))
	switch {
	case f.Name == "cgroup-driver":
		s.cgroupDriver = setting[string]{f.Value, from}
	case f.Name == "resolv-conf":
		s.resolvConf = setting[string]{f.Value, from}
	case err != nil: // the kubelet reports it
	case f.Name == "fail-swap-on":
		s.failSwapOn = setting[bool]{on, from}
	case f.Name == "fail-cgroupv1":
		s.failCgroupV1 = setting[bool]{on, from}
	case f.Name == "protect-kernel-defaults":
		s.protectKernelDefaults = setting[bool]{on, from}
	}
}
