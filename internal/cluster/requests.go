// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
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
	// ServingRequests lists the pending requests of a Node's kubelet, the newest last. It also works with the kubelet's credentials.
	ServingRequests(ctx context.Context, node string) ([]CertificateRequest, error)
	// AwaitServing waits until accept returns nil for the newest of them, or for nil if there's none, and returns it. Requests with
	// former UIDs don't count. After the deadline, the error is accept's last one.
	AwaitServing(ctx context.Context, node string, former []string, accept func(*CertificateRequest) error) (*CertificateRequest, error)
	// Approve approves a request for the given reason, so that the cluster signs the certificate.
	Approve(ctx context.Context, request *CertificateRequest, why string) error
}

// CertificateRequest is the part of a CertificateSigningRequest that says who wants which certificate.
type CertificateRequest struct {
	Metadata struct {
		Name              string      `json:"name"`
		UID               string      `json:"uid"`
		ResourceVersion   string      `json:"resourceVersion"`
		CreationTimestamp metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Request    []byte   `json:"request"` // PEM
		SignerName string   `json:"signerName"`
		Username   string   `json:"username"`
		Usages     []string `json:"usages"`
	} `json:"spec"`
	Status struct {
		Certificate []byte             `json:"certificate"`
		Conditions  []requestCondition `json:"conditions"`
	} `json:"status"`
}

type requestCondition struct {
	Type string `json:"type"`
}

// ServingSigner signs kubelets' serving certificates:
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers
const ServingSigner = "kubernetes.io/kubelet-serving"

// NodeUser is the name of a Node's kubelet as a user of the API.
func NodeUser(node string) string { return nodeUser + node }

// Name is the request's name in the API.
func (c *CertificateRequest) Name() string { return c.Metadata.Name }

func (c *CertificateRequest) has(condition string) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(have requestCondition) bool { return have.Type == condition })
}

func (c *CertificateRequest) pending() bool {
	return len(c.Status.Conditions)+len(c.Status.Certificate) == 0
}

func requestRef(name string) (ref, error) {
	k, err := kindOf("", "CertificateSigningRequest")
	return ref{kind: k, name: name}, err
}

func (r *Real) ServingRequests(ctx context.Context, node string) (list []CertificateRequest, err error) {
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		list, err = c.servingRequests(ctx, node)
		return err
	})
	return list, err
}

func (r *Real) AwaitServing(ctx context.Context, node string, former []string, accept func(*CertificateRequest) error) (found *CertificateRequest, err error) {
	err = r.wait(ctx, policy(reportDelay), func(ctx context.Context, c *conn) error {
		list, err := c.servingRequests(ctx, node)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(r CertificateRequest) bool { return slices.Contains(former, r.Metadata.UID) })
		if found = nil; len(list) > 0 {
			found = &list[len(list)-1]
		}
		if err := accept(found); err != nil {
			return notYetError{err}
		}
		return nil
	})
	return found, err
}

func (c *conn) servingRequests(ctx context.Context, node string) ([]CertificateRequest, error) {
	what, err := requestRef("")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []CertificateRequest `json:"items"`
	}
	data, err := c.do(ctx, c.at(http.MethodGet, what.kind, "").Param("fieldSelector", "spec.signerName="+ServingSigner))
	if err == nil {
		err = errors.Wrap(json.Unmarshal(data, &list), "decode the answer")
	}
	if err != nil {
		return nil, errors.Wrap(err, "list CertificateSigningRequests")
	}
	items := slices.DeleteFunc(list.Items, func(c CertificateRequest) bool { return c.Spec.Username != NodeUser(node) || !c.pending() })
	slices.SortStableFunc(items, func(x, y CertificateRequest) int {
		a, b := x.Metadata, y.Metadata // a time has only whole seconds, and a version is a number
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)), cmp.Compare(a.ResourceVersion, b.ResourceVersion))
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

// ServingRequests finds none: in a plan, no kubelet asks for anything.
func (p *Plan) ServingRequests(context.Context, string) ([]CertificateRequest, error) {
	return nil, nil
}

// AwaitServing names a request that a kubelet would make.
func (p *Plan) AwaitServing(_ context.Context, node string, _ []string, _ func(*CertificateRequest) error) (*CertificateRequest, error) {
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
