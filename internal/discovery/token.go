// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/x509"
	"encoding/json"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
)

const infoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// Token describes discovery by an endpoint, a bootstrap token and the CA's hash.
type Token struct {
	// Endpoint is an API server's host:port.
	Endpoint string
	// ID and Secret are the token's two parts.
	ID, Secret string
	// Pins are the accepted hashes of a trusted certificate: sha256:HEX of its SubjectPublicKeyInfo (RFC 7469, but in hex).
	Pins []string
	// NoPins trusts anything the token has signed, without a pin: anyone who knows the token can pose as the cluster.
	NoPins bool
	// Now is this host's clock.
	Now func() time.Time
	// Progress gets a line that says why discovery is waiting.
	Progress func(format string, args ...any)

	pace pace // zero for the default
}

// maxClockSkew is how far apart clocks may be. Certificates are valid from at most five minutes before they're signed.
const maxClockSkew = 5 * time.Minute

// ByToken asks the endpoint for cluster-info twice: first over an untrusted connection, to verify the content by token and pin,
// then over a connection that trusts only the certificates found there. It retries errors that may pass until ctx ends.
func ByToken(ctx context.Context, t Token) (Cluster, error) {
	first, err := t.ask(ctx, nil)
	if err != nil {
		return Cluster{}, err
	}
	found, err := clusterOf(t.where(), first.kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	if !t.NoPins {
		if found.CA = Pinned(found.CA, t.Pins, t.Now()); len(found.CA) == 0 {
			return Cluster{}, failure(WrongPin, t.where(), "no certificate in cluster-info has one of the given hashes "+
				"(--discovery-token-ca-cert-hash): this is another cluster, its CA was replaced, or someone is posing as it; "+
				"`slipway token create --print-join-command` on a control plane prints the right one")
		}
	}
	second, err := t.ask(ctx, found.CA)
	if err != nil {
		return Cluster{}, t.explain(err, first)
	}
	if !bytes.Equal(first.kubeconfig, second.kubeconfig) {
		return Cluster{}, failure(Changed, t.where(), "cluster-info is different over the trusted connection: "+
			"several servers answer at this address, or it has just changed; try again")
	}
	if err := t.clock(second); err != nil {
		return Cluster{}, err
	}
	return found, nil
}

func (t *Token) where() string { return "discovery at " + t.Endpoint }

type info struct {
	kubeconfig []byte
	// skew is how far the server's clock is ahead of this host's.
	skew time.Duration
}

// ask waits for a cluster-info signed with the token. It trusts the certificates in roots; with nil it relies on the signature
// alone.
func (t *Token) ask(ctx context.Context, roots []*x509.Certificate) (info, error) {
	client := newClient(roots, roots == nil)
	defer client.CloseIdleConnections()
	var last info
	err := t.pace.retry(ctx, t.where(), t.Progress, func(ctx context.Context) error {
		a, err := fetch(ctx, client, "https://"+t.Endpoint+infoPath)
		if err != nil {
			return err
		}
		last.skew = a.skew(t.Now())
		last.kubeconfig, err = t.verify(a.body)
		return err
	})
	return last, err
}

// verify returns the kubeconfig in a ConfigMap cluster-info if this token has signed it.
func (t *Token) verify(body []byte) ([]byte, error) {
	var cm corev1.ConfigMap
	if err := json.Unmarshal(body, &cm); err != nil || cm.Kind != "ConfigMap" || cm.Name != tokenapi.ConfigMapClusterInfo {
		return nil, failure(NotKube, "", "the answer is not ConfigMap cluster-info: is this a Kubernetes API server?")
	}
	content, ok := cm.Data[tokenapi.KubeConfigKey]
	if !ok {
		return nil, failure(Malformed, "", "ConfigMap kube-public/cluster-info has no key %q; `slipway init phase bootstrap-token` on a control plane writes it again", tokenapi.KubeConfigKey)
	}
	signature, ok := cm.Data[tokenapi.JWSSignatureKeyPrefix+t.ID]
	if !ok {
		return nil, failure(UnknownToken, "", "cluster-info is not signed with token %s: "+
			"the token has expired, is unknown, or lacks the usage \"signing\"; `slipway token create --print-join-command` on a control plane creates a new one", t.ID)
	}
	wanted, err := jws.ComputeDetachedSignature(content, t.ID, t.Secret)
	if err != nil {
		return nil, errors.Errorf("token %s cannot be used to verify a signature", t.ID) // the cause may contain the secret
	}
	if !hmac.Equal([]byte(wanted), []byte(signature)) {
		return nil, failure(BadSignature, "", "the signature of cluster-info does not match the token with ID %s: "+
			"its secret is mistyped, or cluster-info was tampered with", t.ID)
	}
	return []byte(content), nil
}

// explain turns an error about a certificate's dates into advice about the clocks, if the untrusted answer shows that they differ.
func (t *Token) explain(err error, first info) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		if clock := t.clock(first); clock != nil {
			return clock
		}
	}
	return err
}

// clock refuses a server whose clock is too far from this host's.
func (t *Token) clock(a info) error {
	ahead := "behind"
	skew := a.skew
	if skew < 0 {
		ahead, skew = "ahead of", -skew
	}
	if skew <= maxClockSkew {
		return nil
	}
	return failure(ClockApart, t.where(), "this host's clock is %s %s the server's, so certificates would not be valid; set the clock, for example with chrony or systemd-timesyncd, and try again",
		skew.Round(time.Second), ahead)
}
