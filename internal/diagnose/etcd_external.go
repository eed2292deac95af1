// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// etcdMissed is what an API server says whose etcd does not answer.
var etcdMissed = lazy(`createTransport failed to connect|error creating storage factory`)

// etcdUnreachable asks an etcd on other hosts itself, with what the API server
// shows to it. One member that answers is enough.
func etcdUnreachable(s *scene) []Finding {
	p := s.pod(apiServerPod)
	if p == nil || s.pod(etcdPod) != nil || p.args["etcd-servers"] == "" {
		return nil
	}
	servers := strings.Split(p.args["etcd-servers"], ",")
	if slices.ContainsFunc(servers, onThisHost) { // it may only be about to be made
		return nil
	}
	if s.t.Waiting && !p.dead && len(p.containers) < 2 && len(matching(p.lines, etcdMissed)) == 0 {
		return nil
	}
	answers := make([]error, len(servers))
	var group sync.WaitGroup
	for i, server := range servers {
		group.Go(func() {
			_, answers[i] = s.h.Fetch(s.ctx, host.Probe{
				URL: strings.TrimRight(server, "/") + "/version",
				CA:  s.file(p.args["etcd-cafile"]), ClientCert: s.file(p.args["etcd-certfile"]), ClientKey: s.file(p.args["etcd-keyfile"]),
			})
		})
	}
	group.Wait()
	var evidence []string
	for _, err := range answers {
		if !noTalk(err) {
			return nil
		}
		evidence = append(evidence, err.Error())
	}
	return []Finding{{
		Subject: apiServerPod, Message: "it cannot talk to its etcd, which is on other hosts: " + strings.Join(servers, ", "), Evidence: evidence,
		lasts: 15 * time.Second,
		Next: "see that etcd runs there, that firewalls let this host connect, and that its certificates are those that etcd trusts; " +
			"the addresses and the files are in " + p.path + " and in etcd.external of ConfigMap kube-system/kubeadm-config",
	}}
}

func onThisHost(server string) bool {
	u, err := url.Parse(server)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// noTalk tells whether an answer shows that there can be no connection. A name
// that does not resolve is another cause, and a member that serves only gRPC
// answers, too, if not what was asked.
func noTalk(err error) bool {
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

// file reads a file that a component is told to use; nil where it cannot.
func (s *scene) file(path string) []byte {
	if path == "" {
		return nil
	}
	data, _ := s.h.ReadFile(path) // another cause says what is wrong with it
	return data
}
