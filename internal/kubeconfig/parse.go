// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"cmp"
	"crypto/x509"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
)

// parsed is a kubeconfig file, with the indexes of the cluster and the user in its current context.
type parsed struct {
	api.Config
	cluster, user int
}

// parse reads a kubeconfig file. Errors quote only names from it.
func parse(data []byte) (*parsed, error) {
	file := &parsed{}
	if err := yaml.Unmarshal(data, &file.Config); err != nil {
		// The decoder's error may quote a key.
		return nil, errors.New("the file is not a kubeconfig in YAML form")
	}
	if file.Kind != "Config" || file.APIVersion != "v1" {
		return nil, errors.Errorf("the file is not a kubeconfig: expected apiVersion v1 and kind Config, got %q and %q",
			file.APIVersion, file.Kind)
	}
	if file.CurrentContext == "" {
		return nil, errors.New("the kubeconfig has no current-context")
	}
	at := slices.IndexFunc(file.Contexts, func(c api.NamedContext) bool { return c.Name == file.CurrentContext })
	if at < 0 {
		return nil, errors.Errorf("the current-context of the kubeconfig, %q, does not exist in it", file.CurrentContext)
	}
	context := file.Contexts[at].Context
	file.cluster = slices.IndexFunc(file.Clusters, func(c api.NamedCluster) bool { return c.Name == context.Cluster })
	file.user = slices.IndexFunc(file.AuthInfos, func(u api.NamedAuthInfo) bool { return u.Name == context.AuthInfo })
	if file.cluster < 0 {
		return nil, errors.Errorf("the current context of the kubeconfig names cluster %q, which does not exist in it", context.Cluster)
	}
	if file.user < 0 {
		return nil, errors.Errorf("the current context of the kubeconfig names user %q, which does not exist in it", context.AuthInfo)
	}
	return file, nil
}

// Server returns the API's URL and CAs from a kubeconfig file that contains these, or from ConfigMap kube-public/cluster-info. A file
// without a current context must have exactly one cluster.
func Server(data []byte) (url string, ca []*x509.Certificate, err error) {
	return ServerAt("", data, nil)
}

// ServerAt is Server for the file at path, which may name another file with the CAs.
func ServerAt(path string, data []byte, read func(path string) ([]byte, error)) (url string, ca []*x509.Certificate, err error) {
	file, at, err := withCluster(data)
	if err != nil {
		return "", nil, err
	}
	cluster := file.Clusters[at].Cluster
	field, text := "certificate-authority-data", cluster.CertificateAuthorityData
	if len(text) == 0 && cluster.CertificateAuthority != "" && read != nil {
		named := Resolve(path, cluster.CertificateAuthority)
		field = "certificate-authority " + named
		text, err = read(named)
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("does not exist") // the kubeconfig file does
		}
	}
	if err == nil {
		ca, err = certs.ParseCerts(text)
	}
	if err != nil {
		return "", nil, errors.Wrap(err, field)
	}
	return cluster.Server, ca, nil
}

// URL is Server without the CAs.
func URL(data []byte) (string, error) {
	file, at, err := withCluster(data)
	if err != nil {
		return "", err
	}
	return file.Clusters[at].Cluster.Server, nil
}

// Resolve returns the path of a file named in the kubeconfig file at path: a relative name begins in that one's directory.
func Resolve(path, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(path), name)
}

// Absolute returns the content of the kubeconfig file at path for use elsewhere: with absolute names of other files.
func Absolute(path string, data []byte) ([]byte, error) {
	var file api.Config
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, errors.New("not a kubeconfig in YAML form") // the decoder's error may quote a key
	}
	var names []*string
	for i := range file.Clusters {
		names = append(names, &file.Clusters[i].Cluster.CertificateAuthority)
	}
	for i := range file.AuthInfos {
		user := &file.AuthInfos[i].AuthInfo
		names = append(names, &user.ClientCertificate, &user.ClientKey, &user.TokenFile)
	}
	changed := false
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(*name) {
			*name, changed = Resolve(path, *name), true
		}
	}
	if !changed {
		return data, nil
	}
	return encode(file)
}

// withCluster returns a file with the index of its cluster.
func withCluster(data []byte) (file api.Config, at int, err error) {
	if err := yaml.Unmarshal(data, &file); err != nil {
		return file, 0, errors.New("not a kubeconfig in YAML form") // the decoder's error may quote a key
	}
	if file.CurrentContext != "" {
		p, err := parse(data)
		if err != nil {
			return file, 0, err
		}
		return p.Config, p.cluster, nil
	}
	if len(file.Clusters) != 1 {
		return file, 0, errors.Errorf("has %d clusters and no current context; expected exactly one cluster", len(file.Clusters))
	}
	return file, 0, nil
}

// Endpoint returns the host:port that a file's client connects to; empty if its server is no URL. CAs may be in another file.
func Endpoint(data []byte) (string, error) {
	server, err := URL(data)
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(server); err == nil && u.Hostname() != "" {
		return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), "443")), nil
	}
	return "", nil // url's error repeats the URL, with any password in it
}

// ErrOtherCredentials means the user has no client certificate, but other credentials, such as a token.
var ErrOtherCredentials = errors.New("the user of the kubeconfig has no client certificate, but other credentials")

// ClientCertificate returns the client certificate of the file's user as PEM, or the name of its file, for Resolve.
func ClientCertificate(data []byte) (cert []byte, file string, err error) {
	p, err := parse(data)
	if err != nil {
		return nil, "", err
	}
	user := p.AuthInfos[p.user].AuthInfo
	switch {
	case len(user.ClientCertificateData) > 0:
		return user.ClientCertificateData, "", nil
	case user.ClientCertificate != "":
		return nil, user.ClientCertificate, nil
	case hasCredentials(user):
		return nil, "", ErrOtherCredentials
	}
	return nil, "", errors.New("the user of the kubeconfig has no client certificate")
}
