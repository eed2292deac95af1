// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests/"

func putRequest(a *api, name, node, signer string, conditions ...string) {
	status := []any{}
	for _, c := range conditions {
		status = append(status, map[string]any{"type": c})
	}
	a.Put(requestsPath+name, map[string]any{
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"signerName": signer, "username": NodeUser(node)},
		"status":   map[string]any{"conditions": status},
	})
}

// TestApprove: the newest pending request of the Node's kubelet is approved, once.
func TestApprove(t *testing.T) {
	a := newAPI(t)
	putRequest(a, "csr-old", "n1", ServingSigner)
	putRequest(a, "csr-new", "n1", ServingSigner)
	putRequest(a, "csr-denied", "n1", ServingSigner, "Denied")
	putRequest(a, "csr-client", "n1", "kubernetes.io/kube-apiserver-client-kubelet")
	putRequest(a, "csr-other", "n2", ServingSigner)
	r := a.client(t)
	request, err := r.AwaitServing(t.Context(), "n1", nil, func(*CertificateRequest) error { return nil })
	if err != nil || request.Name() != "csr-new" {
		t.Fatalf("%+v, %v", request, err)
	}
	older, err := r.AwaitServing(t.Context(), "n1", []string{request.Metadata.UID}, func(*CertificateRequest) error { return nil })
	if err != nil || older.Name() != "csr-old" {
		t.Fatalf("%+v, %v", older, err)
	}
	patches := 0
	a.hook = func(r *http.Request, _ string) fakeapi.Fault {
		if r.Method == http.MethodPatch {
			if patches++; patches == 1 { // another client writes it meanwhile
				a.Put(requestsPath+"csr-new", a.Objects()[requestsPath+"csr-new"])
			}
		}
		return nil
	}
	for range 2 {
		if err := r.Approve(t.Context(), request, "because"); err != nil {
			t.Fatal(err)
		}
	}
	if patches != 2 {
		t.Errorf("%d patches", patches)
	}
	live := a.Objects()[requestsPath+"csr-new"]["status"].(map[string]any)["conditions"].([]any)
	if len(live) != 1 || live[0].(map[string]any)["type"] != "Approved" {
		t.Errorf("%v", live)
	}
	request.Metadata.UID = "another"
	fact.Error(t, r.Approve(t.Context(), request, ""), "csr-new")
}

// TestAwaitServingRefused: after the deadline, the error says why the newest request isn't accepted.
func TestAwaitServingRefused(t *testing.T) {
	a := newAPI(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r := a.client(t)
	_, err := r.AwaitServing(ctx, "n1", nil, func(r *CertificateRequest) error {
		if r == nil {
			return errors.New("no request")
		}
		return nil
	})
	fact.Error(t, err, "no request")
	putRequest(a, "csr-x", "n1", ServingSigner)
	again, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = r.AwaitServing(again, "n1", nil, func(*CertificateRequest) error { return errors.New("192.0.2.9") })
	fact.Error(t, err, "192.0.2.9")
}
