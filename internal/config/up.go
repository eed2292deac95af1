// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
)

// Commands made of others, as the flag table names them.
const (
	upCommand   = "up"
	downCommand = "down"
)

// partsOf are the commands whose flags a command takes. If several have a flag of the same name, the first decides its meaning.
func partsOf(command string) []string {
	switch command {
	case upCommand:
		return []string{upCommand, "join", "init", hostPrepare}
	case downCommand:
		return []string{downCommand, "reset", hostReset}
	}
	return []string{command}
}

// upFlags are up's and down's own flags, beside their parts'.
func upFlags() []flagRow {
	return []flagRow{
		toggle("schedulable", "let ordinary Pods run on this control plane, as a cluster of a single machine needs", func(f *Flags) *bool { return &f.Schedulable }).on(upCommand),
		toggle("host", "also undo what `up` or `host prepare` did before: programs, units, settings, images, the network's leftovers and the backups of upgrades",
			func(f *Flags) *bool { return &f.Host }).on(downCommand),
	}
}

// Joins reports whether `up` makes this host a node of an existing cluster instead of the first of a new one. src is the file of
// --config, or nil.
func (f *Flags) Joins(src *Source) bool {
	if f.Endpoint != "" || f.given("discovery-file") {
		return true
	}
	d := read(src)
	return d.join != nil && d.init == nil && d.cluster == nil
}

// ForUp returns the flags for the two parts of `up`: init or join, and preparing the host, which also gets the runtime and the
// checks to ignore from src. Flags only for the other of init and join are an error.
func (f *Flags) ForUp(joins bool, src *Source) (node, host Flags, err error) {
	part, other, refusal := "init", "join", "only a host that joins a cluster takes %s; to join one, give HOST:PORT or --discovery-file"
	if joins {
		part, other, refusal = "join", "init", "only the first host of a cluster takes %s, and this host joins an existing one"
	}
	var wrong []string
	for _, name := range f.Given {
		takes := func(command string) bool { return flagOf(command, name) != nil }
		own := takes(upCommand) && !joins
		if !own && !takes(part) && !takes(hostPrepare) && (takes(other) || takes(upCommand)) {
			wrong = append(wrong, "--"+name)
		}
	}
	if len(wrong) > 0 {
		return node, host, errors.Errorf(refusal, strings.Join(wrong, ", "))
	}
	host = f.of(hostPrepare)
	for _, name := range f.SkipPhases {
		if phase, ofHost := strings.CutPrefix(name, "prepare/"); ofHost {
			host.SkipPhases = append(host.SkipPhases, phase)
		}
	}
	if r := read(src).registration(joins); r != nil {
		host.CRISocket = cmp.Or(host.CRISocket, r.CRISocket)
		host.IgnorePreflightErrors = slices.Concat(host.IgnorePreflightErrors, r.IgnorePreflightErrors)
	}
	return f.of(part, upCommand), host, nil
}

func (d *documents) registration(joins bool) *NodeRegistrationOptions {
	switch {
	case joins && d.join != nil:
		return &d.join.NodeRegistration
	case !joins && d.init != nil:
		return &d.init.NodeRegistration
	}
	return nil
}

// AdoptKubeletSettings gives a host under preparation the settings of its future kubelet.
func (n *Node) AdoptKubeletSettings(node *Node) {
	n.Kubelet, n.KubeletExtraArgs = node.Kubelet, node.KubeletExtraArgs
}

// ForDown returns the flags for the two parts of `down`: reset and host reset.
func (f *Flags) ForDown() (node, host Flags) {
	node = f.of("reset")
	if f.Host { // nothing needs the node's network then
		node.Given, node.Network = append(node.Given, "network"), true
	}
	return node, f.of(hostReset)
}

// of keeps the given flags that one of the commands takes. The whole command skips phases, not its parts.
func (f *Flags) of(commands ...string) Flags {
	part := *f
	part.SkipPhases = nil
	part.Given = slices.DeleteFunc(slices.Clone(f.Given), func(name string) bool {
		taken := slices.ContainsFunc(commands, func(c string) bool { return flagOf(c, name) != nil })
		return !taken || name == "skip-phases"
	})
	return part
}

// schedule removes the taints of a control plane that ordinary Pods may use.
func (d *documents) schedule(flags *Flags) {
	if flags.given("schedulable") && flags.Schedulable {
		d.init.NodeRegistration.Taints = []corev1.Taint{}
	}
}
