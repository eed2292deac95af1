// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Examples in the printed defaults, in place of a real configuration's own values.
const (
	exampleToken    = "abcdef.0123456789abcdef"
	exampleAddress  = "1.2.3.4"
	exampleNode     = "node"
	exampleEndpoint = "kube-apiserver:6443"
	exampleVersion  = "1.37.0"
)

// KubeadmConfigYAML returns the ClusterConfiguration as stored in the ConfigMap kube-system/kubeadm-config.
func (n *Node) KubeadmConfigYAML() ([]byte, error) { return n.document(kindCluster, &n.Cluster) }

// KubeletYAML returns the cluster's KubeletConfiguration as stored in the ConfigMap kube-system/kubelet-config.
func (n *Node) KubeletYAML() ([]byte, error) { return n.document(kindKubelet, &n.Kubelet) }

// KubeProxyYAML returns the KubeProxyConfiguration as stored in the ConfigMap kube-system/kube-proxy.
func (n *Node) KubeProxyYAML() ([]byte, error) { return n.document(kindKubeProxy, &n.KubeProxy) }

// KubeletWithExtra adds the cluster's fields unknown to this version to a KubeletConfiguration: the kubelet may know them.
func (n *Node) KubeletWithExtra(doc []byte) ([]byte, error) { return n.Extras[kindKubelet].into(doc) }

func (n *Node) document(kind string, doc any) ([]byte, error) {
	data, err := marshal(doc)
	if err != nil {
		return nil, err
	}
	return n.Extras[kind].into(data)
}

// marshal encodes documents as YAML with sorted keys.
func marshal(docs ...any) ([]byte, error) {
	parts := make([][]byte, len(docs))
	for i, doc := range docs {
		var err error
		if parts[i], err = yaml.Marshal(doc); err != nil {
			return nil, errors.Wrapf(err, "%T as YAML", doc)
		}
	}
	return bytes.Join(parts, []byte("---\n")), nil
}

// Validate checks each of a file's documents like the command that uses it, for `config validate`. Invalid input gives Faults.
func Validate(ctx context.Context, src Source, opts Options) (warnings []string, err error) {
	d := readAll(&src, opts.Experimental)
	if len(opts.Facts.Sockets) > 1 { // the command that uses the file chooses
		opts.Facts.Sockets = opts.Facts.Sockets[:1]
	}
	d.complete(ctx, opts)
	d.requireAny(src)
	return d.warningTexts(), d.err()
}

func (d *documents) requireAny(src Source) {
	if len(d.origins) == 0 && len(d.faults) == 0 {
		d.fault(Fault{File: src.Name, Message: "contains no document; expected one of " + knownKinds()})
	}
}

func (d *documents) complete(ctx context.Context, opts Options) {
	opts.Placeholders = true
	if d.init != nil || d.cluster != nil || d.kubelet != nil || d.kubeProxy != nil {
		d.ensureInit()
		d.completeInit(ctx, opts)
	}
	if d.join != nil {
		d.completeJoin(opts)
	}
	if d.reset != nil {
		d.completeReset(opts)
	}
	if d.upgrade != nil {
		defaultUpgrade(d.upgrade)
		d.checkUpgrade()
	}
}

// PrintDefaults returns the default documents of init, join, reset or upgrade. Tokens, addresses and names are examples, except
// for join's node name, which is the host's. components names the component configurations to add, for init only.
func PrintDefaults(command string, components []string, facts HostFacts) ([]byte, error) {
	facts.Sockets = nil
	switch command {
	case "init":
		return printInitDefaults(components)
	case "join":
		c := &JoinConfiguration{Discovery: Discovery{BootstrapToken: &BootstrapTokenDiscovery{
			Token: exampleToken, APIServerEndpoint: exampleEndpoint, UnsafeSkipCAVerification: true,
		}}}
		defaultJoin(c, facts)
		return marshal(c)
	case "reset":
		c := &ResetConfiguration{}
		defaultReset(c, facts)
		return marshal(c)
	case "upgrade":
		c := &UpgradeConfiguration{}
		defaultUpgrade(c)
		return marshal(c)
	}
	return nil, errors.Errorf("there are no defaults for %q", command)
}

func printInitDefaults(components []string) ([]byte, error) {
	c := &InitConfiguration{
		LocalAPIEndpoint: APIEndpoint{AdvertiseAddress: exampleAddress},
		BootstrapTokens:  []BootstrapToken{{Token: exampleToken}},
		NodeRegistration: NodeRegistrationOptions{Name: exampleNode},
	}
	cluster := &ClusterConfiguration{KubernetesVersion: exampleVersion}
	defaultCluster(cluster)
	defaultInit(c, HostFacts{}, firstPrefix(cluster.Networking.ServiceSubnet))
	c.NodeRegistration.Taints = nil // the role decides, not the file
	out := []any{c, cluster}
	known := []string{kindKubelet, kindKubeProxy}
	for _, name := range components {
		if !slices.Contains(known, name) {
			return nil, Faults{{Field: "--component-configs", Message: fmt.Sprintf(
				"unknown component configuration %q; expected one of %s%s", name, strings.Join(known, ", "), didYouMean(name, known))}}
		}
	}
	if slices.Contains(components, kindKubelet) {
		k := &kubelet.KubeletConfiguration{}
		defaultKubelet(k, cluster)
		out = append(out, k)
	}
	if slices.Contains(components, kindKubeProxy) {
		p := &kubeproxy.KubeProxyConfiguration{}
		defaultKubeProxy(p, cluster, firstPrefix(cluster.Networking.ServiceSubnet).Addr())
		out = append(out, p)
	}
	return marshal(out...)
}

// Migrate converts a file to the latest API version, with all defaults, for `config migrate`. Component configurations stay.
func Migrate(ctx context.Context, src Source, opts Options) ([]byte, []string, error) {
	d := readAll(&src, opts.Experimental)
	opts.Existing = true
	ofInit := d.init != nil || d.cluster != nil
	givenKubelet, givenProxy := copyOf(d.kubelet), copyOf(d.kubeProxy)
	d.complete(ctx, opts)
	d.requireAny(src)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	var out []any
	add := func(there bool, documents ...any) {
		if there {
			out = append(out, documents...)
		}
	}
	if ofInit {
		d.nameTokens(opts)
		if d.placeholder { // the host that uses the file determines its address
			d.init.LocalAPIEndpoint.AdvertiseAddress = ""
		}
	}
	add(ofInit, d.init, d.cluster)
	add(d.join != nil, d.join)
	add(d.reset != nil, d.reset)
	add(d.upgrade != nil, d.upgrade)
	add(givenKubelet != nil, givenKubelet)
	add(givenProxy != nil, givenProxy)
	data, err := marshal(out...)
	return data, d.warningTexts(), err
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// nameTokens generates missing tokens, because a migrated file names them.
func (d *documents) nameTokens(opts Options) {
	for i := range d.init.BootstrapTokens {
		t := &d.init.BootstrapTokens[i]
		if t.Token == "" {
			id, secret := opts.NewToken()
			t.Token = id + "." + secret
		}
	}
}
