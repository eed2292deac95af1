// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"
)

// LoadJoin reads, defaults and validates join's configuration from a file (nil for none) and the command line. Invalid input is
// returned as Faults.
func LoadJoin(src *Source, flags Flags, opts Options) (*JoinConfiguration, []string, error) {
	d := read(src)
	if err := d.require(src, kindJoin); err != nil {
		return nil, nil, err
	}
	d.join = cmp.Or(d.join, &JoinConfiguration{})
	flags.applyJoin(d, src != nil)
	d.ignore(kindInit, kindCluster, kindReset, kindUpgrade, kindKubelet, kindKubeProxy)
	d.completeJoin(opts)
	return d.join, d.warningTexts(), d.err()
}

func (d *documents) completeJoin(opts Options) {
	d.checkRegistration(kindJoin, &d.join.NodeRegistration, opts)
	defaultJoin(d.join, opts.Facts)
	if cp := d.join.ControlPlane; cp != nil && (cp.LocalAPIEndpoint.AdvertiseAddress != "" || !opts.Placeholders) {
		d.checkAdvertise(kindJoin, "controlPlane.localAPIEndpoint.advertiseAddress", cp.LocalAPIEndpoint.AdvertiseAddress, nil)
	}
	d.checkJoin()
}

func (f *Flags) applyJoin(d *documents, withFile bool) {
	switch {
	case !withFile:
		f.warnWorker(d)
		f.chooseDiscovery(d)
	case f.Endpoint != "":
		// kubeadm ignores it, and scripts pass it.
		d.warn(Fault{Message: "the address " + printable(f.Endpoint) + " is ignored: --config says where the cluster is"})
	}
	f.apply(d, "join", withFile, kindJoin)
}

func (f *Flags) warnWorker(d *documents) {
	if f.given("control-plane") && f.ControlPlane {
		return
	}
	for _, name := range f.Given {
		row := flagOf("join", name)
		if row != nil && slices.ContainsFunc(row.fields, func(f flagField) bool { return strings.HasPrefix(f.path, joinControlPlane) }) {
			d.warn(Fault{Field: "--" + name, Message: "is ignored without --control-plane: this host joins as a worker"})
		}
	}
}

// chooseDiscovery decides on discovery by token. --token next to a discovery file, without an address, is for TLS bootstrap only.
func (f *Flags) chooseDiscovery(d *documents) {
	byToken := f.given("token") || f.given("discovery-token")
	if f.Endpoint != "" || byToken && !f.given("discovery-file") {
		d.join.Discovery.BootstrapToken = &BootstrapTokenDiscovery{APIServerEndpoint: f.Endpoint}
	}
}
