// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

// Renewable is a certificate that can be renewed, and who shows it.
type Renewable struct {
	Name    string
	Summary string
	// users are the components that must be restarted to show it.
	users []string
}

// Renewables lists what `certs renew` can renew, sorted by name. The CAs are
// not among them, and the kubelet renews its own.
func Renewables() []Renewable {
	apiserver := []string{manifests.APIServerName}
	etcd := []string{manifests.EtcdName}
	return []Renewable{
		{"admin.conf", "The administrator's client certificate", nil},
		{"apiserver", "What the API server shows to its clients", apiserver},
		{"apiserver-etcd-client", "What the API server shows to etcd", apiserver},
		{"apiserver-kubelet-client", "What the API server shows to kubelets", apiserver},
		{"controller-manager.conf", "The controller manager's client certificate", []string{manifests.ControllerManagerName}},
		{"etcd-healthcheck-client", "What probes show to etcd", nil},
		{"etcd-peer", "What etcd's members show to each other", etcd},
		{"etcd-server", "What etcd shows to its clients", etcd},
		{"front-proxy-client", "What the front proxy shows to extension API servers", apiserver},
		{"scheduler.conf", "The scheduler's client certificate", []string{manifests.SchedulerName}},
		{"super-admin.conf", "The client certificate that bypasses authorization", nil},
	}
}

// RenewOptions say how to renew.
type RenewOptions struct {
	// Name is one of Renewables; empty for all that are there.
	Name string
	// AsItWas keeps to what each certificate says: the configuration is not
	// known.
	AsItWas bool
	// Restart restarts the components that use what is new, and gives a
	// kubelet with an expired certificate a new one.
	Restart bool
}

// Renew returns the workflow that renews certificates: new keys, signed by the
// same CAs.
func Renew(o RenewOptions) []Phase {
	renew := Phase{Name: "renew", Summary: "Renew certificates", SideBySide: true}
	for _, r := range Renewables() {
		if o.Name == "" || o.Name == r.Name {
			renew.Children = append(renew.Children, Phase{
				Name: r.Name, Summary: r.Summary,
				Run: func(_ context.Context, env *Env) error { return renewOne(env, r.Name, o) },
			})
		}
	}
	workflow := []Phase{renew}
	if o.Name == "" {
		look := Phase{Name: "look", Summary: "Look for certificates", Run: func(_ context.Context, env *Env) error { return lookForCertificates(env) }}
		workflow = []Phase{look, renew}
	}
	if o.Restart {
		return append(workflow, restartPhases()...)
	}
	return append(workflow, Phase{
		Name:    "restart",
		Summary: "Tell which components must be restarted",
		Run:     func(_ context.Context, env *Env) error { return adviseRestart(env, o) },
	})
}

// lookForCertificates refuses to renew all where there is none at all: on a
// worker, or in a folder that was named by mistake.
func lookForCertificates(env *Env) error {
	for _, r := range renewable(env) {
		if cert, err := r.current(env); cert != nil || err != nil {
			return err
		}
	}
	return errors.Errorf("there is no certificate to renew in %s, nor a kubeconfig in %s: run this on a control plane, or name its folder with --cert-dir",
		env.Config.Paths.PKI, env.Config.Paths.Kubeconfigs)
}

// renewOne renews one certificate. Of all, those that are missing or whose CA
// is kept elsewhere are left out; asked for by name, either is an error.
func renewOne(env *Env, name string, o RenewOptions) error {
	all := renewable(env)
	at := slices.IndexFunc(all, func(r renewal) bool { return r.spec.Name == name })
	if at < 0 {
		return o.refuse(env, errors.Errorf("%s: with an external etcd this node has no such certificate", name))
	}
	r := all[at]
	old, err := r.current(env)
	if err != nil {
		return err
	}
	if old == nil {
		return o.refuse(env, errors.Errorf("%s does not exist, so there is nothing to renew; `slipway init phase %s` makes it",
			r.path(env), r.phase()))
	}
	ca, err := pairStore{env}.ca(r.spec)
	if err != nil {
		return err
	}
	if ca.Key == nil {
		return o.refuse(env, errors.Errorf("%s: the key of its CA %q is not on this host, so the CA's owner must sign it: "+
			"`slipway certs generate-csr --cert-dir DIR --kubeconfig-dir DIR` writes a new key and a signing request into an empty folder",
			name, r.spec.CA))
	}
	return r.renew(env, old, ca, o.AsItWas)
}

// refuse makes an error a warning where everything is to be renewed.
func (o RenewOptions) refuse(env *Env, err error) error {
	if o.Name != "" {
		return err
	}
	env.UI.Warnf("%v", err)
	return nil
}

// phase is the one that makes the certificate anew.
func (r renewal) phase() string {
	if r.file == "" {
		return "certs " + r.spec.Name
	}
	return "kubeconfig " + strings.TrimSuffix(r.file, ".conf")
}

func (r renewal) renew(env *Env, old *x509.Certificate, ca certs.Pair, asItWas bool) error {
	spec, algorithm := r.spec, env.Config.Cluster.EncryptionAlgorithm
	if asItWas {
		spec.DNSNames, spec.IPs = nil, nil
		algorithm = certs.AlgorithmOf(old.PublicKey)
	}
	key, err := certs.NewKey(algorithm, rand.Reader)
	if err != nil {
		return err
	}
	cert, err := certs.Issue(certs.Renewal(spec, old), env.Config, ca, key, env.Host.Now(), rand.Reader)
	if err != nil {
		return err
	}
	if err := r.write(env, certs.Pair{Cert: cert, Key: key}); err != nil {
		return err
	}
	env.UI.Printf("%s is renewed: valid until %s", r.spec.Name, cert.NotAfter.Format("2006-01-02 15:04 MST"))
	return nil
}

func (r renewal) write(env *Env, pair certs.Pair) error {
	if r.file == "" {
		return pairStore{env}.write(r.spec, pair.Cert, pair.Key)
	}
	path := r.path(env)
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return err
	}
	if data, err = kubeconfig.Renewed(data, pair); err != nil {
		return errors.Wrap(err, path)
	}
	return writePrivate(env, path, data)
}

// components are the static Pods of this node, in the order in which to
// restart them.
func components(n *config.Node) []string {
	list := []string{manifests.EtcdName, manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName}
	if n.Cluster.Etcd.External != nil {
		return list[1:]
	}
	return list
}

// adviseRestart names the components that use what was renewed.
func adviseRestart(env *Env, o RenewOptions) error {
	renewed := map[string]bool{}
	for _, r := range renewable(env) {
		renewed[r.spec.Name] = (o.Name == "" || o.Name == r.spec.Name) && r.canBeRenewed(env)
	}
	var list []string
	for _, component := range components(env.Config) {
		if slices.ContainsFunc(Renewables(), func(r Renewable) bool { return renewed[r.Name] && slices.Contains(r.users, component) }) {
			list = append(list, component)
		}
	}
	if len(list) > 0 {
		env.UI.Nextf("Restart %s now, or with --restart, to use what is new", strings.Join(list, ", "))
	}
	if renewed["admin.conf"] {
		env.UI.Nextf("Copies of admin.conf, such as ~/.kube/config, have to be made again")
	}
	return nil
}

// canBeRenewed tells whether renewOne does not refuse r.
func (r renewal) canBeRenewed(env *Env) bool {
	cert, err := r.current(env)
	if err != nil || cert == nil {
		return false
	}
	ca, err := pairStore{env}.ca(r.spec)
	return err == nil && ca.Key != nil
}
