// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
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

// Joins reports whether `up` joins this host to an existing cluster, rather than begin a cluster. src is --config's file, or nil.
func (f *UpFlags) Joins(src *Source) bool {
	if f.Join.Endpoint != "" || f.Given.Has("discovery-file") {
		return true
	}
	d := read(src)
	return d.join != nil && d.init == nil && d.cluster == nil
}

// Split gives the parts of `up` their flags: Host, which also gets the runtime and the checks to ignore from src, and either Join
// or Init. Flags only for the other of the two are an error.
func (f *UpFlags) Split(joins bool, src *Source) error {
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
		return errors.Errorf(refusal, strings.Join(wrong, ", "))
	}
	f.Init.Given = copyFlags(f, &f.Init, f.Given, "init", upCommand)
	f.Join.Given = copyFlags(f, &f.Join, f.Given, "join", upCommand)
	f.Host.Given = copyFlags(f, &f.Host, f.Given, hostPrepare)
	for _, name := range f.SkipPhases {
		if phase, ofHost := strings.CutPrefix(name, "prepare/"); ofHost {
			f.Host.SkipPhases = append(f.Host.SkipPhases, phase)
		}
	}
	if r := read(src).registration(joins); r != nil {
		f.Host.CRISocket = cmp.Or(f.Host.CRISocket, r.CRISocket)
		f.Host.IgnorePreflightErrors = slices.Concat(f.Host.IgnorePreflightErrors, r.IgnorePreflightErrors)
	}
	return nil
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

// Split gives the parts of `down`, reset and host reset, their flags.
func (f *DownFlags) Split() {
	f.Reset.Given = copyFlags(f, &f.Reset, f.Given, "reset")
	f.Host.Given = copyFlags(f, &f.Host, f.Given, hostReset)
	if f.Reset.Host { // nothing needs the node's network then
		f.Reset.Given, f.Reset.Network = append(f.Reset.Given, "network"), true
	}
}

// copyFlags copies the flags of a whole command to one of its parts, and returns the given flags that one of the commands takes.
// The whole command skips phases, not its parts.
func copyFlags(whole, part any, given Given, commands ...string) Given {
	for name := range flagFields()[reflect.TypeOf(part).Elem()] {
		if name != "skip-phases" {
			reflect.ValueOf(fieldOf(part, name)).Elem().Set(reflect.ValueOf(fieldOf(whole, name)).Elem())
		}
	}
	return slices.DeleteFunc(slices.Clone(given), func(name string) bool {
		taken := slices.ContainsFunc(commands, func(c string) bool { return flagOf(c, name) != nil })
		return !taken || name == "skip-phases"
	})
}

// NewEmptyFlag refuses an empty value for a flag about whose bundles to trust. Ignoring it would let any bundle in.
func NewEmptyFlag(name string) error {
	return fault.New("--"+name+" is given, but empty", "give it a value, or leave it out; perhaps a variable of the shell is unset")
}

// LoadHost returns the desired state of a host to prepare or reset, which may not be a node yet, from the command line.
func LoadHost(flags HostFlags) (*Machine, error) {
	if flags.Given.Has("digest") && flags.Digest == "" {
		return nil, NewEmptyFlag("digest")
	}
	if flags.Given.Has("public-key") && len(flags.PublicKeys) == 0 {
		return nil, NewEmptyFlag("public-key")
	}
	if flags.Given.Has("digest") && flags.Bundle == "" {
		return nil, errors.New("--digest is the digest of --bundle: give both")
	}
	if flags.Given.Has("swap") && flags.Swap != "off" && flags.Swap != "keep" {
		return nil, errors.Errorf("--swap must be off or keep, not %q", flags.Swap)
	}
	socket := flags.CRISocket
	if socket != "" && !strings.Contains(socket, "://") {
		socket = "unix://" + socket
	}
	m := DefaultMachine()
	m.CRISocket, m.SkipPhases, m.IgnorePreflightErrors, m.DryRun = socket, flags.SkipPhases, lowered(flags.IgnorePreflightErrors), flags.DryRun
	return m, nil
}
