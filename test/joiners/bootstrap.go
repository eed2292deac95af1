// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joiners

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/url"

	"github.com/pkg/errors"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// bootstrap gets a client certificate signed for a node, as a kubelet does:
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
func bootstrap(ctx context.Context, kubeconfig []byte, node string) error {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := requestFor(node)
	if err != nil {
		return err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := call(ctx, client, http.MethodPost, cfg.Host+requestsPath, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	var made certificatesv1.CertificateSigningRequest
	if err := json.NewDecoder(answer).Decode(&made); err != nil {
		return err
	}
	return awaitSigned(ctx, client, cfg.Host, made.Name, node)
}

func requestFor(node string) (*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}

// awaitSigned watches the request until it has a certificate for the node.
func awaitSigned(ctx context.Context, client *http.Client, server, name, node string) error {
	query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + name}}
	events, err := call(ctx, client, http.MethodGet, server+requestsPath+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer events.Close()
	for decoder := json.NewDecoder(events); ; {
		var event struct {
			Object certificatesv1.CertificateSigningRequest `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return errors.Wrap(err, "waiting for the certificate")
		}
		block, _ := pem.Decode(event.Object.Status.Certificate)
		if block == nil {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && cert.Subject.CommonName != "system:node:"+node {
			err = errors.Errorf("the certificate is for %s", cert.Subject.CommonName)
		}
		return err
	}
}

func call(ctx context.Context, client *http.Client, method, url string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		_ = answer.Body.Close()
		return nil, errors.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return answer.Body, nil
}
