// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// Approver deals with requests for kubelets' serving certificates. Nothing in a cluster approves them by itself: only somebody who
// knows the host can tell whether its names and addresses are right.
type Approver interface {
	// AwaitServing waits until the Node's kubelet has a pending request that accept returns nil for, and returns the newest. After the
	// deadline, the error is accept's last one. It also works with the credentials of the node's kubelet.
	AwaitServing(ctx context.Context, node string, accept func(*CertificateRequest) error) (*CertificateRequest, error)
	// Approve approves a request for the given reason, so that the cluster signs the certificate.
	Approve(ctx context.Context, request *CertificateRequest, why string) error
}

// CertificateRequest is the part of a CertificateSigningRequest that says who wants which certificate.
type CertificateRequest struct {
	Metadata struct {
		Name, UID, ResourceVersion string
		CreationTimestamp          metav1.Time
	}
	Spec struct {
		Request              []byte // PEM
		SignerName, Username string
		Usages               []string
	}
	Status struct {
		Certificate []byte
		Conditions  []struct{ Type string }
	}
}

// ServingSigner signs kubelets' serving certificates:
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers
const ServingSigner = "kubernetes.io/kubelet-serving"

// NodeUser is the name of a Node's kubelet as a user of the API.
func NodeUser(node string) string { return "system:node:" + node }

// Name is the request's name in the API.
func (c *CertificateRequest) Name() string { return c.Metadata.Name }

func (c *CertificateRequest) has(condition string) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(have struct{ Type string }) bool { return have.Type == condition })
}

func (c *CertificateRequest) pending() bool {
	return len(c.Status.Conditions)+len(c.Status.Certificate) == 0
}

func requestRef(name string) (ref, error) {
	k, err := kindOf("", "CertificateSigningRequest")
	return ref{kind: k, name: name}, err
}

func (r *Real) AwaitServing(ctx context.Context, node string, accept func(*CertificateRequest) error) (found *CertificateRequest, err error) {
	err = r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error {
		list, err := c.servingRequests(ctx, node)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return notYetError{errors.Errorf("the kubelet of Node %s has no pending request for a serving certificate; `journalctl -u kubelet` shows why", node)}
		}
		found = &list[len(list)-1]
		if err := accept(found); err != nil {
			return notYetError{errors.WithMessagef(err, "CertificateSigningRequest %s", found.Name())}
		}
		return nil
	})
	return found, err
}

// servingRequests lists the pending requests of a Node's kubelet, the newest last.
func (c *conn) servingRequests(ctx context.Context, node string) ([]CertificateRequest, error) {
	what, err := requestRef("")
	if err != nil {
		return nil, err
	}
	var list struct{ Items []CertificateRequest }
	data, err := c.do(ctx, c.at(http.MethodGet, what.kind, "").Param("fieldSelector", "spec.signerName="+ServingSigner))
	if err == nil {
		err = errors.Wrap(json.Unmarshal(data, &list), "decode the answer")
	}
	if err != nil {
		return nil, errors.Wrap(err, "list CertificateSigningRequests")
	}
	items := slices.DeleteFunc(list.Items, func(c CertificateRequest) bool { return c.Spec.Username != NodeUser(node) || !c.pending() })
	slices.SortStableFunc(items, func(a, b CertificateRequest) int {
		return a.Metadata.CreationTimestamp.Compare(b.Metadata.CreationTimestamp.Time)
	})
	return items, nil
}

// Approve reads the request again: an answer may have been lost, and another request may have taken the name. A request's content
// can't change.
func (r *Real) Approve(ctx context.Context, request *CertificateRequest, why string) error {
	what, err := requestRef(request.Name())
	if err != nil {
		return err
	}
	return r.call(ctx, func(ctx context.Context, c *conn) error {
		var live CertificateRequest
		data, found, err := c.read(ctx, what)
		if err == nil && found {
			err = errors.Wrapf(json.Unmarshal(data, &live), "get %s: decode the answer", what)
		}
		switch {
		case err != nil:
			return err
		case !found || live.Metadata.UID != request.Metadata.UID || live.has("Denied"):
			return errors.Errorf("%s was deleted, replaced or denied before it could be approved", what)
		case live.has("Approved"):
			return nil
		}
		err = c.send(ctx, c.object(http.MethodPatch, what).SubResource("approval"), string(types.MergePatchType), map[string]any{
			"metadata": map[string]any{"uid": live.Metadata.UID, "resourceVersion": live.Metadata.ResourceVersion},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": "Approved", "status": "True", "reason": "SlipwayVerified", "message": why, "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
			}}},
		})
		return errors.Wrapf(err, "approve %s", what)
	})
}

// VerbApprove approves a request for a certificate.
const VerbApprove Verb = "approve"

// AwaitServing doesn't wait: in a plan, no kubelet asks for anything.
func (p *Plan) AwaitServing(_ context.Context, node string, _ func(*CertificateRequest) error) (*CertificateRequest, error) {
	request := &CertificateRequest{}
	request.Metadata.Name, request.Spec.Username = "REQUEST-OF-"+node, NodeUser(node)
	return request, nil
}

func (p *Plan) Approve(_ context.Context, request *CertificateRequest, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(Action{Verb: VerbApprove, Kind: "CertificateSigningRequest", Name: request.Name()})
	return nil
}
