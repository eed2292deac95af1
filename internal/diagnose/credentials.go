// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var (
	tlsTrouble = lazyregexp.New(`x509: |tls: |certificate.*(?:expired|invalid|not valid|mismatch)|(?:expired|invalid).*certificate|` +
		`\.(?:crt|key|pem|conf)["']?: (?:no such file|permission denied)|failed to find any PEM|does not contain any valid|` +
		`(?:load|parse|read).*(?:certificate|key pair|keypair)|private key`)
	caTrouble = lazyregexp.New(`signed by unknown authority|unknown certificate authority|certificate is not trusted`)
)

const certificateRemedy = "renew it with `slipway certs renew all --restart`, which shows what else is wrong, or put the right file there. " +
	"A worker has to join again (`slipway token create --print-join-command` on a control plane)"

// certificate reports bad files. During a wait, a log has to show that they matter.
func certificate(o *observation) []symptom {
	said := o.said(tlsTrouble)
	if o.t.Waiting && len(said) == 0 {
		return nil
	}
	return o.fileFindings(wrongFile, said, certificateRemedy)
}

// kubeletServing reports the certificate that the kubelet has from the cluster, if it isn't renewed in time. The kubelet asks for the
// next after 70 to 90 percent of the present one's time, and somebody has to approve that:
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/#certificate-rotation
func kubeletServing(o *observation) []symptom {
	if o.t.Serving == "" {
		return nil
	}
	data, err := o.h.ReadFile(o.t.Serving)
	if err != nil {
		return nil // not yet approved: the kubelet has a certificate of its own
	}
	leaf, err := certs.FirstCert(data)
	if err != nil {
		return nil // the kubelet makes another
	}
	message, now := "", o.h.Now()
	switch late := leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 10); {
	case now.After(leaf.NotAfter):
		message = "its serving certificate expired at %s, so it serves neither logs nor exec nor metrics"
	case now.After(late):
		message = "its serving certificate expires at %s, and nobody has approved its request for the next"
	default:
		return nil
	}
	return []symptom{{minDuration: never, Finding: fault.Finding{
		Subject: kubeletName, Evidence: []string{o.t.Serving}, Message: fmt.Sprintf(message, leaf.NotAfter.UTC().Format(time.RFC3339)),
		Remedy: "run `slipway reconfigure node` here: on a control plane it approves this kubelet's own request, on a worker it names the request to approve",
	}}}
}

// caMismatch reports certificates from a CA the other side doesn't trust.
func caMismatch(o *observation) []symptom {
	said := o.said(caTrouble)
	if len(said) == 0 {
		said = o.said(tlsTrouble)
	}
	if o.t.Waiting && len(said) == 0 {
		return nil
	}
	const remedy = "put back the CA that signed the other certificates, or delete this certificate and make it again with " +
		"`slipway init phase certs all` and `slipway init phase kubeconfig all`, with the cluster's configuration (--config)"
	found := o.fileFindings(otherCA, said, remedy)
	if len(found) > 0 {
		return found
	}
	return o.strangerServer()
}

func (o *observation) fileFindings(cause string, said []string, remedy string) []symptom {
	var subjects, messages []string
	for _, f := range o.certificateFaults() {
		if f.Name != cause {
			continue
		}
		messages = append(messages, f.Message)
		if !slices.Contains(subjects, f.Subject) {
			subjects = append(subjects, f.Subject)
		}
	}
	if len(messages) == 0 {
		return nil
	}
	return []symptom{{minDuration: time.Second, Finding: fault.Finding{
		Subject: strings.Join(subjects, ", "), Message: strings.Join(messages, "; "), Remedy: remedy,
		Evidence: said,
	}}}
}

// strangerServer covers a node whose API server runs on another host: the kubelet logs that it doesn't trust the server.
func (o *observation) strangerServer() []symptom {
	server := o.serverOf()
	lines := mentioning(o.repeatedLines(o.sources[0], caTrouble), server) // not a registry
	if len(lines) == 0 || server == "" {
		return nil
	}
	return []symptom{{minDuration: 2 * time.Second, Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: "does not trust the certificate of the API server at " + server,
		Remedy:  "join again with the cluster's current CA (`slipway token create --print-join-command` shows its hash); if something on the way intercepts TLS, bypass it",
	}}}
}
