// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// oldestEtcd is the first patch of etcd 3.5 that kubeadm 1.36 accepts.
const oldestEtcd = "3.5.24-0"

func externalEtcd(e *config.ExternalEtcd) []Check {
	return []Check{
		{Name: "ExternalEtcdVersion", Run: etcdVersion(e), Asks: "each member of an external etcd answers, and is new enough"},
		{Name: "ExternalEtcdClientCertificates", Run: etcdFiles(e), Asks: "the files for an external etcd are there and belong together"},
	}
}

// etcdVersion asks each member. Where etcd serves HTTP and gRPC apart, only
// the first has /version.
func etcdVersion(e *config.ExternalEtcd) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		endpoints := e.Endpoints
		if len(e.HTTPEndpoints) > 0 {
			endpoints = e.HTTPEndpoints
		}
		var probe host.Probe
		for _, f := range etcdTLS(e, &probe) {
			data, err := h.ReadFile(f.path)
			if err != nil {
				return fault("etcd cannot be asked for its version without %s: %v", f.field, err)
			}
			*f.data = data
		}
		found := make([][]Finding, len(endpoints))
		sideBySide(len(endpoints), together, func(i int) {
			p := probe
			p.URL = strings.TrimRight(endpoints[i], "/") + "/version"
			found[i] = memberVersion(ctx, h, p)
		})
		return slices.Concat(found...)
	}
}

func memberVersion(ctx context.Context, h View, p host.Probe) []Finding {
	body, err := h.Fetch(ctx, p)
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return unasked("the version of etcd at %s", p.URL)
	case err != nil:
		return fault("etcd does not say its version: %v; check etcd.external in the configuration, and that etcd runs and can be reached from here", err)
	}
	var answer struct {
		Server string `json:"etcdserver"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fault("%s answers something that is not etcd's version: %v", p.URL, err)
	}
	have, err := version.ParseSemantic(answer.Server)
	if err != nil {
		return fault("%s says that etcd's version is %q, which is none", p.URL, answer.Server)
	}
	if have.LessThan(version.MustParseSemantic(oldestEtcd)) {
		return fault("%s is etcd %s; Kubernetes needs at least %s: upgrade it", p.URL, have, oldestEtcd)
	}
	return nil
}

// tlsFile is one of the files by which the API server talks to etcd.
type tlsFile struct {
	field, path string
	data        *[]byte
}

// etcdTLS lists the files that the configuration names, and where in p their
// content belongs.
func etcdTLS(e *config.ExternalEtcd, p *host.Probe) []tlsFile {
	files := []tlsFile{
		{"etcd.external.caFile", e.CAFile, &p.CA},
		{"etcd.external.certFile", e.CertFile, &p.ClientCert},
		{"etcd.external.keyFile", e.KeyFile, &p.ClientKey},
	}
	return slices.DeleteFunc(files, func(f tlsFile) bool { return f.path == "" })
}

func etcdFiles(e *config.ExternalEtcd) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		var probe host.Probe
		var found []Finding
		for _, f := range etcdTLS(e, &probe) {
			data, err := h.ReadFile(f.path)
			switch {
			case err != nil:
				found = append(found, fault("%s: %v; copy it here from an etcd host", f.field, err)...)
			case len(data) == 0:
				found = append(found, fault("%s: %s is empty; copy it here from an etcd host", f.field, f.path)...)
			}
			*f.data = data
		}
		if len(found) > 0 || len(probe.ClientCert) == 0 {
			return found
		}
		if _, err := tls.X509KeyPair(probe.ClientCert, probe.ClientKey); err != nil {
			return fault("%s and %s do not belong together: %v", e.CertFile, e.KeyFile, err)
		}
		return nil
	}
}
