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

// Commands that are made of others, as the table of flags calls them.
const (
	upCommand   = "up"
	downCommand = "down"
)

// partsOf are the commands whose flags a command takes. Where two of them have a flag of the same name, the first tells what
// it means.
func partsOf(command string) []string {
	switch command {
	case upCommand:
		return []string{upCommand, "join", "init", hostPrepare}
	case downCommand:
		return []string{downCommand, "reset", hostReset}
	}
	return []string{command}
}

// upFlags are those that up and down have beside the flags of their parts.
func upFlags() []flagRow {
	return []flagRow{
		toggle("schedulable", "let ordinary Pods run on this control plane, as a single machine needs it", func(f *Flags) *bool { return &f.Schedulable }).on(upCommand),
		toggle("host", "also undo what `up` or `host prepare` did before: programs, units, settings, images, the network's leftovers and the backups of upgrades",
			func(f *Flags) *bool { return &f.Host }).on(downCommand),
	}
}

// Joins reports whether `up` is to make this host a node of a cluster that there is, and not the first of a new one. src is the
// file of --config, or nil.
func (f *Flags) Joins(src *Source) bool {
	if f.Endpoint != "" || f.given("discovery-file") {
		return true
	}
	d := read(src)
	return d.join != nil && d.init == nil && d.cluster == nil
}

// ForUp returns the flags for the two parts of `up`: for init or join, and for preparing the host, which also goes by what src
// says of its runtime and of the checks to ignore. Flags that only the other of init and join takes are an error.
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

// registration is what a file says of this host as a node, or nil.
func (d *documents) registration(joins bool) *NodeRegistrationOptions {
	switch {
	case joins && d.join != nil:
		return &d.join.NodeRegistration
	case !joins && d.init != nil:
		return &d.init.NodeRegistration
	}
	return nil
}

// Becomes tells a host that is prepared which node it will be: with which settings its kubelet will run.
func (n *Node) Becomes(node *Node) {
	n.Kubelet, n.KubeletExtraArgs = node.Kubelet, node.KubeletExtraArgs
}

// ForDown returns the flags for the two parts of `down`: those of reset and of host reset.
func (f *Flags) ForDown() (node, host Flags) {
	node = f.of("reset")
	if f.Host { // nothing of the node's network is of use then
		node.Given, node.Network = append(node.Given, "network"), true
	}
	return node, f.of(hostReset)
}

// of returns the flags with those given that one of the commands takes. Phases are skipped by the command that has them all.
func (f *Flags) of(commands ...string) Flags {
	part := *f
	part.SkipPhases = nil
	part.Given = slices.DeleteFunc(slices.Clone(f.Given), func(name string) bool {
		taken := slices.ContainsFunc(commands, func(c string) bool { return flagOf(c, name) != nil })
		return !taken || name == "skip-phases"
	})
	return part
}

// schedule takes the taints from a control plane on which ordinary Pods may run.
func (d *documents) schedule(flags *Flags) {
	if flags.given("schedulable") && flags.Schedulable {
		d.init.NodeRegistration.Taints = []corev1.Taint{}
	}
}
