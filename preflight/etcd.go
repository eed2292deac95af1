// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/parallel"
)

// oldestEtcd is the first patch of etcd 3.5 that kubeadm 1.36 accepts.
const oldestEtcd = "3.5.24-0"

func externalEtcd(e *config.ExternalEtcd) []Check {
	return []Check{
		{Name: "ExternalEtcdVersion", Run: with(e, etcdVersion), Description: "each member of an external etcd answers and is new enough"},
		{Name: "ExternalEtcdClientCertificates", Run: with(e, etcdFiles), Description: "the files for an external etcd exist, and certificate and key match"},
	}
}

const copyFromEtcd = "copy the file to this host from an etcd host"

// EtcdImageTag is the check that a local etcd is new enough for the flags in its static Pod.
func EtcdImageTag(n *config.Node, moreRemedy string) Check {
	return Check{Name: "EtcdImageTag", Description: "etcd.local.imageTag, where it is set, names etcd 3.6 or newer", Run: func(context.Context, View) []fault.Finding {
		local := n.Cluster.Etcd.Local
		if n.Cluster.Etcd.External != nil || local == nil {
			return nil
		}
		tag, err := version.ParseGeneric(local.ImageTag)
		if err != nil || tag.AtLeast(version.MajorMinor(3, 6)) { // without a tag, or with one that's no version
			return nil
		}
		return fail("etcd.local.imageTag is %s, but etcd before 3.6 does not have the flags --feature-gates and --watch-progress-notify-interval of its static Pod, and would not start", local.ImageTag).
			remedy("remove etcd.local.imageTag, or set it to a tag of etcd 3.6 or newer%s", moreRemedy)
	}}
}

// etcdVersion asks each member. Where etcd serves HTTP and gRPC at different addresses, only the HTTP address has /version.
func etcdVersion(ctx context.Context, h View, e *config.ExternalEtcd) []fault.Finding {
	endpoints := e.Endpoints
	if len(e.HTTPEndpoints) > 0 {
		endpoints = e.HTTPEndpoints
	}
	var probe host.Probe
	for _, f := range etcdTLS(e, &probe) {
		data, err := h.ReadFile(f.path)
		if err != nil {
			return fail("cannot ask etcd for its version without %s: %v", f.field, err).remedy(copyFromEtcd)
		}
		*f.data = data
	}
	return slices.Concat(parallel.Map(endpoints, maxConcurrentChecks, func(endpoint string) []fault.Finding {
		p := probe
		p.URL = strings.TrimRight(endpoint, "/") + "/version"
		return memberVersion(ctx, h, p)
	})...)
}

func memberVersion(ctx context.Context, h View, p host.Probe) []fault.Finding {
	const checkEndpoints = "check the addresses in etcd.external"
	body, err := h.Fetch(ctx, p)
	if errors.Is(err, host.ErrNotInPlan) {
		return unasked("the version of etcd at %s", p.URL)
	}
	if err != nil {
		return fail("cannot get etcd's version: %v", err).
			remedy("check that etcd is running and can be reached from this host, and check etcd.external in the configuration")
	}
	var answer struct {
		Server string `json:"etcdserver"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fail("%s did not answer with etcd's version: %v", p.URL, err).remedy(checkEndpoints)
	}
	have, err := version.ParseSemantic(answer.Server)
	if err != nil {
		return fail("%s reports an invalid etcd version %q", p.URL, answer.Server).remedy(checkEndpoints)
	}
	if have.LessThan(version.MustParseSemantic(oldestEtcd)) {
		return fail("%s is etcd %s, but Kubernetes needs at least %s", p.URL, have, oldestEtcd).remedy("upgrade etcd")
	}
	return nil
}

// tlsFile is a file the API server needs to connect to etcd.
type tlsFile struct {
	field, path string
	data        *[]byte
}

// etcdTLS lists the files named in the configuration, and the fields of p for their content.
func etcdTLS(e *config.ExternalEtcd, p *host.Probe) []tlsFile {
	files := []tlsFile{
		{"etcd.external.caFile", e.CAFile, &p.CA},
		{"etcd.external.certFile", e.CertFile, &p.ClientCert},
		{"etcd.external.keyFile", e.KeyFile, &p.ClientKey},
	}
	return slices.DeleteFunc(files, func(f tlsFile) bool { return f.path == "" })
}

func etcdFiles(_ context.Context, h View, e *config.ExternalEtcd) []fault.Finding {
	var probe host.Probe
	var found []fault.Finding
	for _, f := range etcdTLS(e, &probe) {
		data, err := h.ReadFile(f.path)
		switch {
		case err != nil:
			found = append(found, fail("%s: %v", f.field, err).remedy(copyFromEtcd)...)
		case len(data) == 0:
			found = append(found, fail("%s: %s is empty", f.field, f.path).remedy(copyFromEtcd)...)
		}
		*f.data = data
	}
	if len(found) > 0 || len(probe.ClientCert) == 0 {
		return found
	}
	if _, err := tls.X509KeyPair(probe.ClientCert, probe.ClientKey); err != nil {
		return fail("%s does not match %s: %v", e.CertFile, e.KeyFile, err).remedy("copy a certificate and its own key from an etcd host")
	}
	return nil
}

const (
	// syncGoal is etcd's limit for a disk at the 99th percentile:
	// https://etcd.io/docs/v3.5/op-guide/hardware/#disks
	syncGoal = 10 * time.Millisecond
	// syncTimeout bounds the measurement.
	syncTimeout = 500 * time.Millisecond
)

// etcdDisk measures the sync before a write's acknowledgment: a slow disk causes most elections and timeouts of small clusters.
func etcdDisk(ctx context.Context, h View, dataDir string) []fault.Finding {
	dir := existingDir(h, dataDir)
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	took, err := h.SyncTimes(ctx, dir)
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return unasked("how fast the disk of %s is", dir)
	case err != nil && h.EffectiveUID() != 0:
		return skip("did not measure the disk of %s: this needs root", dir)
	case err != nil:
		return warn("cannot measure the disk of %s: %v", dir, err).remedy("check that the file system is writable and has free space")
	}
	slices.Sort(took)
	p99 := took[int(math.Ceil(0.99*float64(len(took))))-1] // the nearest rank
	if p99 <= syncGoal {
		return nil
	}
	return warn("the disk of %s takes %s to sync a write (99th percentile of %d), but etcd needs at most %s to answer quickly and avoid leader elections under load",
		dir, p99.Round(100*time.Microsecond), len(took), syncGoal).
		remedy("give etcd a faster disk (etcd.local.dataDir), or stop other programs that write to this one")
}
