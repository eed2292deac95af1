// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	requestsPath  = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	kubeletSigner = "kubernetes.io/kube-apiserver-client-kubelet"
	// A client with a bootstrap token is called by the token's ID, and a kubelet by its Node's name.
	bootstrapUser = "system:bootstrap:"
	nodeUser      = "system:node:"
)

// certificateRequest is the part of a CertificateSigningRequest that says who wants to be whom.
type certificateRequest struct {
	Spec struct {
		Username string
		Request  []byte
	}
}

// deleteTokens deletes the bootstrap tokens with which the host has asked for its kubelet's certificate, as long as the cluster
// keeps the request, about an hour. Somebody may find them on its disk. Other nodes may be using them, too, so the run says so.
func (l *LostNode) deleteTokens(ctx context.Context, env *step.Env) error {
	var list struct{ Items []certificateRequest }
	q := cluster.Query{Path: requestsPath, Params: url.Values{"fieldSelector": {"spec.signerName=" + kubeletSigner}}}
	if err := cluster.ReadJSON(ctx, env.Cluster, q, cluster.LargestList, &list); err != nil {
		return errors.WithMessage(err, "find the tokens that the host joined with")
	}
	valid, err := env.Tokens().List(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, token := range valid {
		used := func(r certificateRequest) bool {
			return r.Spec.Username == bootstrapUser+token.ID && requestedName(r.Spec.Request) == nodeUser+l.name
		}
		if slices.ContainsFunc(list.Items, used) {
			ids = append(ids, token.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	env.UI.Printf("Deleting the tokens %s, which other nodes may want to join with, too", strings.Join(ids, ", "))
	return env.Tokens().Delete(ctx, ids)
}

// requestedName returns the user's name in a certificate request; empty if it can't be read.
func requestedName(data []byte) string {
	block, _ := pem.Decode(data)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return request.Subject.CommonName
}
