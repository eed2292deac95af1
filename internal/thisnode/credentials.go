// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"crypto/x509"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// KubeletFile is a joined kubelet's kubeconfig file.
type KubeletFile struct {
	Path    string
	Data    []byte // from ReadKubeletFile, the names of other files in it are absolute
	Server  string
	Trusted []*x509.Certificate // the CAs it trusts
}

// ReadKubeletFile reads the kubeconfig file at path. Its error is fs.ErrNotExist if the file is missing or empty.
func ReadKubeletFile(h host.Host, path string) (*KubeletFile, error) {
	data, err := readFilled(h, path)
	if err != nil {
		return nil, err
	}
	server, trusted, err := kubeconfig.ServerAt(path, data, h.ReadFile)
	if err == nil {
		data, err = kubeconfig.Absolute(path, data)
	}
	if err != nil {
		return nil, errors.Wrap(err, path)
	}
	return &KubeletFile{Path: path, Data: data, Server: server, Trusted: trusted}, nil
}

// readFilled takes an empty file for a missing file: the kubelet doesn't sync its files, so that's what a power cut leaves.
func readFilled(h host.Host, path string) ([]byte, error) {
	data, err := h.ReadFile(path)
	if err == nil && len(data) == 0 {
		err = &emptyError{path}
	}
	return data, err
}

type emptyError struct{ path string }

func (e *emptyError) Error() string { return e.path + " is empty" }

func (e *emptyError) Is(target error) bool { return target == fs.ErrNotExist }

// CheckMember returns nil if this host's kubelet is a member of n's cluster under n's name, with a certificate that's valid now,
// and otherwise the reason. If the certificate has expired, that's an *ExpiredError.
func CheckMember(h host.Host, n *config.Node) error {
	conf, err := ReadKubeletFile(h, n.Paths.KubeletKubeconfig())
	if err != nil {
		return err
	}
	if !SharesCA(conf.Trusted, n) {
		return errors.Errorf("%s is of another cluster", conf.Path)
	}
	return conf.CheckFor(h, n.Name)
}

// HasJoined reports whether this host's kubelet has ever got a certificate of n's cluster under n's name. Its kubeconfig file alone is no
// sign: the kubelet writes that when it starts, before it asks.
func HasJoined(h host.Host, n *config.Node) bool {
	err := CheckMember(h, n)
	return err == nil || errors.As(err, new(*ExpiredError))
}

// CheckFor returns nil if the file authenticates the node called name now, and otherwise the reason.
func (k *KubeletFile) CheckFor(h host.Host, name string) error {
	leaf, err := k.Certificate(h)
	if err != nil {
		return err
	}
	return CheckCertificate(k.Path, leaf, name, h.Now())
}

// Certificate returns the kubelet's client certificate, which may be in a separate file.
func (k *KubeletFile) Certificate(h host.Host) (*x509.Certificate, error) {
	cert, file, err := kubeconfig.ClientCertificate(k.Data)
	if err == nil && file != "" {
		cert, err = readFilled(h, kubeconfig.Resolve(k.Path, file))
	}
	if err != nil {
		return nil, errors.Wrap(err, k.Path)
	}
	leaf, err := certs.FirstCert(cert)
	return leaf, errors.Wrap(err, k.Path)
}

// CheckCertificate returns nil if leaf, the kubelet's certificate in the file at path, is for the node called name and valid now.
// If it has expired, the error is an *ExpiredError.
func CheckCertificate(path string, leaf *x509.Certificate, name string, now time.Time) error {
	switch has := NameIn(leaf); {
	case has != name:
		return errors.Errorf("%s is of node %q, not %q", path, has, name)
	case now.After(leaf.NotAfter):
		return &ExpiredError{path, leaf}
	}
	return nil
}

// ClientCertificateCheck returns a function that checks the content of the kubelet's certificate file at path, for
// Host.AwaitFile. With an empty name, the certificate may be any node's: a flag can name the kubelet.
func ClientCertificateCheck(h host.Host, path, name string) func(data []byte) error {
	return func(data []byte) error {
		leaf, err := certs.FirstCert(data)
		if err != nil {
			return errors.Wrap(err, path)
		}
		return CheckCertificate(path, leaf, cmp.Or(name, NameIn(leaf)), h.Now())
	}
}

// NameIn returns the node name in its kubelet's client certificate: https://kubernetes.io/docs/reference/access-authn-authz/node/
func NameIn(leaf *x509.Certificate) string {
	return strings.TrimPrefix(leaf.Subject.CommonName, "system:node:")
}

// ExpiredError means that the kubelet's client certificate has expired; joining again repairs it.
type ExpiredError struct {
	path string
	leaf *x509.Certificate
}

func (e *ExpiredError) Error() string {
	return e.path + ": the client certificate expired on " + e.leaf.NotAfter.UTC().Format("2006-01-02")
}

// SharesCA reports whether list holds any CA of n's cluster.
func SharesCA(list []*x509.Certificate, n *config.Node) bool {
	ours, err := certs.ParseCerts(n.Join.CA)
	return err == nil && len(SharedCAs(list, ours)) > 0
}

// SharedCAs returns the certificates of a that are in b, too.
func SharedCAs(a, b []*x509.Certificate) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a), func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}

func certifiedName(h host.Host) string {
	path := filepath.Join(config.DefaultKubernetesDir, "kubelet.conf")
	data, err := h.ReadFile(path)
	if err != nil {
		return ""
	}
	leaf, err := (&KubeletFile{Path: path, Data: data}).Certificate(h)
	if err != nil {
		return ""
	}
	return NameIn(leaf)
}
