// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/x509"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// File describes discovery by a kubeconfig from a trusted source.
type File struct {
	// Location is a path on this host, or an https URL.
	Location string
	// ReadFile reads files on this host.
	ReadFile func(path string) ([]byte, error)
	// Progress gets a line that says why discovery is waiting.
	Progress func(format string, args ...any)

	pace  pace
	roots []*x509.Certificate // nil for the host's own
}

// ByFile reads a kubeconfig from this host, or from an https URL if the host's own CAs vouch for the server. credentials is a
// kubeconfig of that cluster with the file's user; nil if the file has no user.
func ByFile(ctx context.Context, f File) (found Cluster, credentials []byte, err error) {
	where := "discovery by " + Shown(f.Location)
	data, remote, err := f.read(ctx, where)
	if err != nil {
		return Cluster{}, nil, err
	}
	file, err := parse(where, data)
	if err != nil {
		return Cluster{}, nil, err
	}
	cluster, user, err := current(where, file)
	if err != nil {
		return Cluster{}, nil, err
	}
	if path := cluster.CertificateAuthority; path != "" && !remote && len(cluster.CertificateAuthorityData) == 0 {
		if cluster.CertificateAuthorityData, err = f.ReadFile(f.absolute(path)); err != nil {
			return Cluster{}, nil, errors.Wrap(err, where)
		}
	}
	if found, err = trustedCluster(where, cluster); err != nil || user == nil {
		return found, nil, err
	}
	if err := f.usable(where, user, remote); err != nil {
		return Cluster{}, nil, err
	}
	cluster.CertificateAuthority = ""
	credentials, err = yaml.Marshal(api.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "bootstrap",
		Clusters:  []api.NamedCluster{{Name: "kubernetes", Cluster: cluster}},
		AuthInfos: []api.NamedAuthInfo{{Name: "bootstrap", AuthInfo: *user}},
		Contexts:  []api.NamedContext{{Name: "bootstrap", Context: api.Context{Cluster: "kubernetes", AuthInfo: "bootstrap"}}},
	})
	return found, credentials, errors.Wrap(err, "encoding a kubeconfig")
}

// Shown returns a location without possible secrets: user, password, and the values of the query, where signed URLs have theirs.
// If a password isn't escaped, it shows nothing of the URL, because the password's end is unclear.
func Shown(location string) string {
	if !strings.Contains(location, "://") {
		return location
	}
	u, err := url.Parse(location)
	if err != nil || u.User == nil && strings.Contains(location, "@") {
		return "https://" + hidden
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		fields := strings.Split(u.RawQuery, "&")
		for i, field := range fields {
			name, _, set := strings.Cut(field, "=")
			if fields[i] = hidden; set {
				fields[i] = name + "=" + hidden
			}
		}
		u.RawQuery = strings.Join(fields, "&")
	}
	return u.String()
}

const hidden = "[redacted]"

func (f *File) read(ctx context.Context, where string) (data []byte, remote bool, err error) {
	u, err := url.Parse(f.Location)
	if err != nil && strings.Contains(f.Location, "://") {
		return nil, true, failure(Malformed, where, "the URL is malformed; in a user name or a password, escape characters such as / ? # %%: %%2F for /")
	}
	if err != nil || u.Scheme != "https" {
		data, err = f.ReadFile(f.Location)
		return data, false, errors.Wrap(err, "discovery file")
	}
	client := newClient(f.roots, false)
	defer client.CloseIdleConnections()
	f.pace.settle, f.pace.make = -1, -1 // this can be any web server, which isn't being made
	err = f.pace.retry(ctx, where, f.Progress, func(ctx context.Context) error {
		a, err := fetch(ctx, client, f.Location)
		data = a.body
		if refused := (*Error)(nil); errors.As(err, &refused) { // without the advice about API servers
			refused.Message, _, _ = strings.Cut(refused.Message, ":")
		}
		return err
	})
	return data, true, err
}

// current returns the cluster and user of the current context. Without a current context, the file must have exactly one cluster,
// and no user.
func current(where string, file api.Config) (api.Cluster, *api.AuthInfo, error) {
	at := slices.IndexFunc(file.Contexts, func(c api.NamedContext) bool { return c.Name == file.CurrentContext })
	if at < 0 {
		if file.CurrentContext != "" {
			return api.Cluster{}, nil, failure(Malformed, where, "the kubeconfig's current context %q is missing", file.CurrentContext)
		}
		if len(file.Clusters) != 1 {
			return api.Cluster{}, nil, failure(ManyClusters, where, "the kubeconfig has %d clusters and no current context", len(file.Clusters))
		}
		return file.Clusters[0].Cluster, nil, nil
	}
	context := file.Contexts[at].Context
	c := slices.IndexFunc(file.Clusters, func(c api.NamedCluster) bool { return c.Name == context.Cluster })
	if c < 0 {
		return api.Cluster{}, nil, failure(Malformed, where, "the kubeconfig's current context names a cluster that it does not define")
	}
	u := slices.IndexFunc(file.AuthInfos, func(u api.NamedAuthInfo) bool { return u.Name == context.AuthInfo })
	if u < 0 {
		return file.Clusters[c].Cluster, nil, nil
	}
	return file.Clusters[c].Cluster, &file.AuthInfos[u].AuthInfo, nil
}

// usable makes a user's paths absolute. A kubeconfig from the network must not name this host's files, or programs to run.
func (f *File) usable(where string, user *api.AuthInfo, remote bool) error {
	named := user.ClientCertificate + user.ClientKey + user.TokenFile
	if remote && (named != "" || user.Exec != nil || user.AuthProvider != nil) {
		return failure(Malformed, where, "the kubeconfig's user names files or programs, which is not allowed in a kubeconfig from a URL")
	}
	for _, path := range []*string{&user.ClientCertificate, &user.ClientKey, &user.TokenFile} {
		if *path != "" {
			*path = f.absolute(*path)
		}
	}
	return nil
}

// absolute resolves a relative path as kubectl does: from the kubeconfig's directory.
func (f *File) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.Location), path)
}
