// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/internal/parallel"
)

// etcdMissed matches an API server's complaints about an etcd that doesn't answer.
var etcdMissed = lazyregexp.New(`createTransport failed to connect|error creating storage factory`)

// etcdUnreachable connects to an etcd on other hosts with the API server's own certificate. One answering member is enough.
func etcdUnreachable(o *observation) []symptom {
	p, servers := o.pod(apiServerPod), o.externalEtcd()
	if len(servers) == 0 || o.pod(etcdPod) != nil {
		return nil
	}
	if o.t.Waiting && !p.dead && len(p.containers) < 2 && len(matching(p.lines, etcdMissed)) == 0 {
		return nil
	}
	answers := parallel.Map(servers, 0, func(server string) error {
		_, err := o.h.Fetch(o.ctx, host.Probe{
			URL: strings.TrimRight(server, "/") + "/version",
			CA:  o.file(p.file("etcd-cafile")), ClientCert: o.file(p.file("etcd-certfile")), ClientKey: o.file(p.file("etcd-keyfile")),
		})
		return err
	})
	var evidence []string
	for _, err := range answers {
		if !isUnreachable(err) {
			return nil
		}
		evidence = append(evidence, err.Error())
	}
	return []symptom{{minDuration: 15 * time.Second, Finding: fault.Finding{
		Subject: apiServerPod, Evidence: evidence,
		Message: "cannot connect to its etcd on other hosts: " + strings.Join(servers, ", "),
		Remedy: "check that etcd runs there, that firewalls let this host connect, and that etcd trusts its certificate; " +
			"the addresses and files are in " + p.path + " and in etcd.external of ConfigMap kube-system/kubeadm-config",
	}}}
}

// externalEtcd lists the URLs of the API server's etcd on other hosts; none if one is on this host, where the static Pod of etcd may not
// have been written yet.
func (o *observation) externalEtcd() []string {
	p := o.pod(apiServerPod)
	if p == nil || p.args["etcd-servers"] == "" {
		return nil
	}
	servers := strings.Split(p.args["etcd-servers"], ",")
	if slices.ContainsFunc(servers, onThisHost) {
		return nil
	}
	return servers
}

func onThisHost(server string) bool {
	u, err := url.Parse(server)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// isUnreachable reports whether an error means no connection is possible. An unresolvable name is another cause, and a member that
// serves only gRPC does answer, even if with an error.
func isUnreachable(err error) bool {
	var name *net.DNSError
	var dialed *net.OpError
	var slow net.Error
	var server *tls.CertificateVerificationError
	var client tls.AlertError
	switch {
	case err == nil, errors.As(err, &name):
		return false
	case errors.As(err, &server):
		return true
	case errors.As(err, &client):
		const badCertificate, unknownCA, certificateRequired = 42, 48, 116 // RFC 8446, 6.2
		return slices.Contains([]tls.AlertError{badCertificate, unknownCA, certificateRequired}, client)
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return true
	}
	return errors.As(err, &slow) && slow.Timeout()
}

// file returns the content of a component's file, or nil if it can't be read.
func (o *observation) file(path string) []byte {
	if path == "" {
		return nil
	}
	data, _ := o.h.ReadFile(path) // another cause reports the problem
	return data
}
