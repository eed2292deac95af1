// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// betweenDocuments separates the documents of a cluster's configuration.
const betweenDocuments = "\n---\n"

// configurationIn returns the cluster's configuration as documents for init, first the ClusterConfiguration, from what text returns of
// ConfigMaps; nil without that.
func configurationIn(text func(key, configMap, name string) (string, error)) ([]byte, error) {
	var documents []string
	for _, d := range []struct{ key, configMap, name string }{
		{etcd.ClusterKey, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey},
		{etcd.KubeletKey, manifests.KubeletConfigMap, "kubelet"},
		{etcd.KubeProxyKey, manifests.KubeProxyConfigMap, "config.conf"},
	} {
		document, err := text(d.key, d.configMap, d.name)
		if err != nil {
			return nil, err
		}
		if document == "" && len(documents) == 0 {
			return nil, nil
		}
		if document != "" {
			documents = append(documents, strings.TrimSpace(strings.TrimPrefix(document, "---\n")))
		}
	}
	return []byte(strings.Join(documents, betweenDocuments) + "\n"), nil
}

// storedConfiguration is the configuration that a database has; nil if it has none, or an encrypted one.
func storedConfiguration(c etcd.Contents) []byte {
	data, _ := configurationIn(func(key, _, name string) (string, error) { return textIn(c, key, name), nil })
	return data
}

// configurationToSeal is the configuration that the snapshot has, or else, if ConfigMaps are encrypted, the API.
func configurationToSeal(ctx context.Context, env *step.Env, c etcd.Contents) ([]byte, error) {
	if data := storedConfiguration(c); data != nil {
		return data, nil
	}
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	data, err := configurationIn(func(_, configMap, name string) (string, error) {
		return cluster.ConfigMapText(limited, env.Cluster, metav1.NamespaceSystem, configMap, name)
	})
	if err == nil && data == nil {
		err = errors.Errorf("%s does not exist", config.ClusterSource)
	}
	return data, err
}

// Configuration returns the cluster's configuration for an init that restores from a snapshot, from the journal of an interrupted run
// if there's one: the file isn't needed any more then. It's nil if the snapshot has none, or doesn't exist.
func Configuration(h host.Host, from Source) (*config.Source, error) {
	defer limitMemory()()
	journal, err := node.ReadEtcdJournalOn(h, config.DefaultPaths())
	if host.IgnoreForbidden(err) != nil {
		return nil, err
	}
	data := []byte(journal.Configuration)
	if journal.Command != initCommand || journal.From != from.File || len(data) == 0 {
		data, err = from.readConfiguration(h)
	}
	if host.IgnoreMissing(err) != nil || len(data) == 0 {
		return nil, host.IgnoreMissing(err)
	}
	return &config.Source{Name: "the configuration in " + from.File, Data: data}, nil
}

// readConfiguration doesn't read a sealed snapshot to its end: the restore does.
func (s *Source) readConfiguration(h host.Host) ([]byte, error) {
	if snapshots.IsSealed(s.File) {
		if err := s.checkIdentities(); err != nil {
			return nil, err
		}
		in, err := snapshots.Open(h, s.File, s.With)
		if err != nil {
			return nil, err
		}
		return in.Configuration, in.Close()
	}
	f, err := h.Open(s.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := etcd.VerifySnapshot(f)
	return storedConfiguration(info.Contents), err
}

// configured checks that init makes the control plane of the cluster in the snapshot: the restored objects and the nodes' files have
// its networks, names and addresses.
func (b *BareHost) configured(ctx context.Context, env *step.Env) error {
	document, _, _ := bytes.Cut(b.configuration, []byte(betweenDocuments))
	if len(document) == 0 {
		env.UI.Warn(b.File+" does not have the cluster's configuration, so nothing was compared with it",
			"make sure that --config matches the original cluster: its networks, its DNS domain and its addresses")
		return nil
	}
	then, _, err := config.LoadCluster(document, nil, nil, nil, config.Options{AnyVersion: true})
	if err != nil {
		env.UI.Warn(fmt.Sprintf("the configuration in %s was not compared: %v", b.File, err), "make sure that --config has what the cluster was made with")
		return nil
	}
	refused, others, err := differences(&then.Cluster, &env.Config.Cluster)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		env.UI.Warn(fmt.Sprintf("this configuration differs from the one in %s: %s", b.File, strings.Join(others, ", ")),
			"leave these out of --config to use the snapshot's")
	}
	return node.Check(ctx, env, preflight.Check{Name: fault.RestoredConfiguration, Description: "the configuration is the restored cluster's",
		Run: func(context.Context, preflight.View) []fault.Finding { return refused }})
}

// differences compares a cluster's configuration with another. Some fields can't change in a restore: refused are findings about them,
// others the names of the rest.
func differences(then, now *config.ClusterConfiguration) (refused []fault.Finding, others []string, err error) {
	for _, f := range []struct{ name, then, now string }{
		{"networking.serviceSubnet", then.Networking.ServiceSubnet, now.Networking.ServiceSubnet},
		{"networking.podSubnet", then.Networking.PodSubnet, now.Networking.PodSubnet},
		{"networking.dnsDomain", then.Networking.DNSDomain, now.Networking.DNSDomain},
		{"controlPlaneEndpoint", then.ControlPlaneEndpoint, now.ControlPlaneEndpoint},
	} {
		if f.then != f.now {
			refused = append(refused, fault.NewFinding(fault.RestoredConfiguration, fault.Error, "leave it out, to use the snapshot's, or set the same",
				"%s is %q in the restored cluster, and %q in this configuration", f.name, f.then, f.now))
		}
	}
	lost := slices.DeleteFunc(slices.Clone(then.APIServer.CertSANs), func(san string) bool { return slices.Contains(now.APIServer.CertSANs, san) })
	if len(lost) > 0 {
		refused = append(refused, fault.NewFinding(fault.RestoredConfiguration, fault.Error, "add them, or leave out apiServer to use the snapshot's",
			"apiServer.certSANs lacks %s: clients that reach the API there would not trust it", strings.Join(lost, ", ")))
	}
	others, err = otherDifferences(*then, *now)
	return refused, others, err
}

// otherDifferences names the fields that differ, except for fields that differences compares.
func otherDifferences(then, now config.ClusterConfiguration) (names []string, err error) {
	fields := func(c config.ClusterConfiguration) (all map[string]json.RawMessage, err error) {
		c.TypeMeta, c.Networking, c.ControlPlaneEndpoint = metav1.TypeMeta{}, config.Networking{}, ""
		data, err := json.Marshal(c)
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		return all, errors.WithStack(err)
	}
	a, err := fields(then)
	if err != nil {
		return nil, err
	}
	b, err := fields(now)
	if err != nil {
		return nil, err
	}
	for _, all := range []map[string]json.RawMessage{a, b} {
		for name := range all {
			if !bytes.Equal(a[name], b[name]) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
