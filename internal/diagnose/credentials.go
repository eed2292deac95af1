// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"
	"strings"
	"time"
)

var (
	tlsTrouble = lazy(`x509: |tls: |certificate.*(?:expired|invalid|not valid|mismatch)|(?:expired|invalid).*certificate|` +
		`\.(?:crt|key|pem|conf)["']?: (?:no such file|permission denied)|failed to find any PEM|does not contain any valid|` +
		`(?:load|parse|read).*(?:certificate|key pair|keypair)|private key`)
	caTrouble = lazy(`signed by unknown authority|unknown certificate authority|certificate is not trusted`)
)

const certificateNext = "renew it with `slipway certs renew all --restart`, which shows what else is wrong; or put the right file there. " +
	"`slipway certs check-expiration` lists all of them"

// certificate reports the files that are wrong. During a wait somebody has to
// have complained.
func certificate(s *scene) []Finding {
	said := s.said(tlsTrouble)
	if s.t.Waiting && len(said) == 0 {
		return nil
	}
	return s.fileFindings(wrongFile, said, certificateNext)
}

// caMismatch reports certificates of another CA than the one that is trusted.
func caMismatch(s *scene) []Finding {
	said := s.said(caTrouble)
	if len(said) == 0 {
		said = s.said(tlsTrouble)
	}
	if s.t.Waiting && len(said) == 0 {
		return nil
	}
	const next = "the two are of different CAs: put back the CA that signed the others, or delete the certificate and make it again with " +
		"`slipway init phase certs` and `slipway init phase kubeconfig`"
	found := s.fileFindings(otherCA, said, next)
	if len(found) > 0 {
		return found
	}
	return s.strangerServer()
}

func (s *scene) fileFindings(kind faultKind, said []string, next string) []Finding {
	var subjects, messages []string
	for _, f := range s.certificateFaults() {
		if f.kind != kind {
			continue
		}
		messages = append(messages, f.message)
		if !slices.Contains(subjects, f.subject) {
			subjects = append(subjects, f.subject)
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return []Finding{{
		Subject: strings.Join(subjects, ", "), Message: strings.Join(messages, "; "),
		Evidence: said, Next: next, lasts: time.Second,
	}}
}

// strangerServer is for a node whose API server is elsewhere: the kubelet says
// that it does not trust it.
func (s *scene) strangerServer() []Finding {
	server := s.serverOf()
	lines := mentioning(s.insists(s.sources[0], caTrouble), server) // not a registry
	if len(lines) == 0 || server == "" {
		return nil
	}
	return []Finding{{
		Subject: kubeletName, Message: "it does not trust the certificate of the API server at " + server, Evidence: last(lines, 1), lasts: 2 * time.Second,
		Next: "join again with the cluster's present CA (its hash is in `slipway token create --print-join-command`); if something between intercepts TLS, go around it",
	}}
}
