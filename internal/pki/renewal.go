// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// RenewableRows returns all rows that `certs renew` can renew on some node, sorted by name.
func RenewableRows() []certs.Spec { return sorted(certs.Table(), certs.Spec.Renewable) }

func sorted(rows []certs.Spec, want func(certs.Spec) bool) []certs.Spec {
	rows = slices.DeleteFunc(slices.Clone(rows), func(row certs.Spec) bool { return !want(row) })
	sort.SliceStable(rows, func(i, j int) bool { return rows[i].Name < rows[j].Name })
	return rows
}

// Renewal gives certificates new keys, and has the same CAs sign them.
type Renewal struct {
	Store Store
	Name  string // one of RenewableRows' names; empty to renew every certificate that exists
	// Within limits the renewal to certificates that end within this time, and whose successors would last long enough; 0 renews all.
	Within time.Duration
	// FromOldCertificates takes everything from the old certificates, because the node's configuration is unknown.
	FromOldCertificates bool
	// KeepKey keeps keys in files of their own, so that certificate and key match at every moment: with a mismatch, a starting
	// component would end. A key with another algorithm than the configuration's is still replaced.
	KeepKey bool
	// CheckTrust adds the rows to be renewed to Due, for Advise, which runs when they aren't due any more.
	Due map[string]bool
	// Without are names and addresses of the old certificates that the new ones lose, unless their rows have them.
	Without []string
}

// CheckAny returns an error if there's nothing to renew: on a worker, or if the user named the wrong directory.
func (r Renewal) CheckAny() error {
	for _, row := range sorted(certs.Specs(r.Store.Config), certs.Spec.Renewable) {
		if cert, err := r.Store.Current(row); cert != nil || err != nil {
			return err
		}
	}
	paths := r.Store.Config.Paths
	return errors.Errorf("there is no certificate to renew in %s, nor a kubeconfig file in %s; run this on a control plane, or name its directory with --cert-dir",
		paths.PKI, paths.Kubeconfigs)
}

// Renew renews one certificate. When renewing all, it only warns if it's missing or its CA's key is elsewhere.
func (r Renewal) Renew(name string) error {
	row, found := certs.Find(r.Store.Config, name)
	if !found {
		return r.refuse(errors.Errorf("%s: with an external etcd, this node has no such certificate", name))
	}
	old, err := r.Store.Current(row)
	if err != nil {
		return err
	}
	if old == nil {
		return r.nothing(row)
	}
	if !r.due(old) {
		r.Store.UI.Printf("%s is valid until %s, so it stays", name, ui.Time(old.NotAfter))
		return nil
	}
	ca, err := r.Store.CA(row.CA)
	if err != nil {
		return err
	}
	if ca.Key == nil {
		return r.refuse(fault.New(fmt.Sprintf("%s: the key of its CA %q is not on this host, so the owner of the CA must sign it", name, row.CA),
			"run `slipway certs generate-csr --cert-dir DIR --kubeconfig-dir DIR`, which writes a new key and a signing request into an empty directory"))
	}
	if !r.lasts(old, ca.Cert) {
		r.stays(row, old, ca.Cert)
		return nil
	}
	return r.replace(row, old, ca)
}

func (r Renewal) nothing(row certs.Spec) error {
	path := r.Store.Files(row)[0]
	switch _, err := r.Store.Host.Lstat(path); {
	case err != nil:
		return r.refuse(fault.New(path+" does not exist, so there is nothing to renew", "create it with `slipway init phase "+row.Phase()+"`"))
	case r.Name != "":
		return fault.New(path+" has no client certificate, but other credentials, so there is nothing to renew", "renew these where they come from")
	}
	r.Store.UI.Printf("%s has no client certificate, but other credentials, so it stays", path)
	return nil
}

// due reports whether a certificate ends soon enough to be renewed.
func (r Renewal) due(cert *x509.Certificate) bool {
	return r.Within == 0 || cert.NotAfter.Before(r.Store.Host.Now().Add(r.Within))
}

// lasts reports whether a certificate's successor would last long enough. Without this, a daily renewal of certificates that end soon
// would renew them each day if they always do: because their CA ends, or because they're valid for no longer than r.Within.
func (r Renewal) lasts(old, ca *x509.Certificate) bool {
	period := r.period(old, ca)
	next := r.Store.Host.Now().Add(period)
	if r.Within == 0 || next.After(ca.NotAfter) {
		return r.Within == 0 || old.NotAfter.Before(ca.NotAfter)
	}
	return next.Sub(old.NotAfter) >= period/3
}

// period is how long the next certificate is valid, from now on. That of an old certificate that begins with its CA isn't known: some
// tools give this beginning to all certificates, and with each renewal they'd be valid for longer. So they would be if the old one's
// backdating counted.
func (r Renewal) period(old, ca *x509.Certificate) time.Duration {
	configured := r.Store.Config.Cluster.CertificateValidityPeriod.Duration
	asBefore := old.NotAfter.Sub(old.NotBefore.Add(certs.Backdate))
	switch {
	case !r.FromOldCertificates:
		return configured
	case old.NotBefore.Equal(ca.NotBefore):
		return min(configured, asBefore)
	}
	return asBefore
}

// stays says why a certificate isn't renewed, although it ends soon.
func (r Renewal) stays(row certs.Spec, old, ca *x509.Certificate) {
	if old.NotAfter.Before(ca.NotAfter) {
		r.Store.UI.Printf("%s is valid until %s, and a new one would not last much longer, so it stays", row.Name, ui.Time(old.NotAfter))
		return
	}
	r.Store.UI.Warn(fmt.Sprintf("%s stays, because a new one could not last longer: its CA %q ends on %s", row.Name, row.CA, ui.Time(ca.NotAfter)),
		"replace the CA before it ends: see \"Replacing a CA\" in docs/cluster-life.md")
}

// refuse turns an error into a warning when renewing all.
func (r Renewal) refuse(err error) error {
	if r.Name != "" {
		return err
	}
	ui.WarnError(r.Store.UI, err)
	return nil
}

func (r Renewal) replace(row certs.Spec, old *x509.Certificate, ca certs.Pair) error {
	n := r.Store.Config.With(func(n *config.Node) {
		n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: r.period(old, ca.Cert)}
	})
	algorithm := n.Cluster.EncryptionAlgorithm
	if r.FromOldCertificates {
		row.DNSNames, row.IPs = nil, nil
		algorithm = certs.AlgorithmOf(old.PublicKey)
	}
	key, err := r.keyFor(row, algorithm)
	if err != nil {
		return err
	}
	cert, err := certs.Issue(certs.Renewal(row, certs.Without(old, r.Without)), n, ca, key, r.Store.Host.Now())
	if err != nil {
		return err
	}
	if err := r.Store.Replace(row, certs.Pair{Cert: cert, Key: key}); err != nil {
		return err
	}
	if row.Name == certs.APIServer && old.CheckSignatureFrom(ca.Cert) != nil {
		r.Store.UI.Warn("the API server's certificate comes from another CA than before: "+named(ca.Cert.Subject.String(), ca.Cert.SubjectKeyId),
			"nodes, Pods and users that don't trust that one yet are refused once the API server has it: see \"Replacing a CA\" in docs/cluster-life.md")
	}
	r.Store.UI.Nextf("Renewed %s: valid until %s", row.Name, ui.Time(cert.NotAfter))
	return nil
}

func (r Renewal) keyFor(row certs.Spec, algorithm config.EncryptionAlgorithm) (crypto.Signer, error) {
	if r.KeepKey && row.Kubeconfig == "" {
		_, data, err := r.Store.Read(row)
		if err != nil {
			return nil, err
		}
		if key, err := certs.ParseKey(data); err == nil && certs.AlgorithmOf(key.Public()) == algorithm {
			return key, nil
		}
	}
	return certs.NewKey(algorithm)
}

// Advise names the components to restart so that they use the certificates in Due.
func (r Renewal) Advise() error {
	renewed, users := map[string]bool{}, map[string]bool{}
	for _, row := range sorted(certs.Specs(r.Store.Config), certs.Spec.Renewable) {
		if r.Due[row.Name] {
			renewed[row.Name], users[row.UsedBy] = true, true
		}
	}
	restart := slices.DeleteFunc(manifests.Components(r.Store.Config), func(component string) bool { return !users[component] })
	if len(restart) > 0 {
		r.Store.UI.Nextf("Restart %s to use the renewed certificates; with --restart, this command does it", strings.Join(restart, ", "))
	}
	if renewed[certs.Admin] {
		r.Store.UI.Nextf("Replace copies of admin.conf, such as ~/.kube/config")
	}
	return nil
}

// canRenew reports whether Renew accepts a row.
func (r Renewal) canRenew(row certs.Spec) bool {
	cert, err := r.Store.Current(row)
	if err != nil || cert == nil || !r.due(cert) {
		return false
	}
	ca, err := r.Store.CA(row.CA)
	return err == nil && ca.Key != nil && r.lasts(cert, ca.Cert)
}

type Expiration struct {
	Name     string // the row's: "apiserver", "admin.conf", "ca"
	CA       string // the issuing row's name; empty for a CA
	NotAfter time.Time
	Missing  bool
	// Unreadable reports that its file exists, but can't be read.
	Unreadable bool
	// Needed reports that a component of each control plane reads it from the certificates directory.
	Needed bool
	// External reports that the CA's key isn't on this host.
	External bool
}

// Expirations returns this node's CAs and renewable certificates, each sorted by name. If one can't be read, the error says why; the
// list is complete all the same.
func Expirations(s Store) (leaves, authorities []Expiration, err error) {
	external := map[string]bool{}
	rows := certs.Specs(s.Config)
	for _, row := range sorted(rows, certs.Spec.IsCA) {
		e, unread := expirationOfCA(s, row)
		err = cmp.Or(err, unread)
		external[row.Name] = e.External
		authorities = append(authorities, e)
	}
	for _, row := range sorted(rows, certs.Spec.Renewable) {
		cert, unread := s.Current(row)
		err = cmp.Or(err, unread)
		e := Expiration{Name: row.Name, CA: row.CA, Missing: cert == nil && unread == nil, Unreadable: unread != nil, External: external[row.CA]}
		e.Needed = row.UsedBy != "" && row.Kubeconfig == ""
		if cert != nil {
			e.NotAfter = cert.NotAfter
		}
		leaves = append(leaves, e)
	}
	return leaves, authorities, err
}

func expirationOfCA(s Store, row certs.Spec) (Expiration, error) {
	data, key, err := s.Read(row)
	if err == nil && data == nil {
		return Expiration{Name: row.Name, Missing: true, Needed: true}, nil
	}
	var list []*x509.Certificate
	if err == nil {
		list, err = certs.ParseCerts(data)
		err = errors.Wrap(err, s.Files(row)[0])
	}
	if err != nil {
		return Expiration{Name: row.Name, Unreadable: true, Needed: true}, err
	}
	return Expiration{Name: row.Name, NotAfter: list[0].NotAfter, External: key == nil, Needed: true}, nil
}
