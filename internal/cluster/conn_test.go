// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func TestReady(t *testing.T) {
	a := newAPI(t)
	const failing = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: not finished\nreadyz check failed\n"
	a.faults[http.MethodGet] = []fakeapi.Fault{fakeapi.Reset, fakeapi.Forbidden, fakeapi.Hang, answers(401, "", ""), answers(500, "", failing)}
	r := a.impatient(t)
	if err := r.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}

	a.hook = func(*http.Request, string) fakeapi.Fault { return answers(500, "", failing) }
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := a.client(t).Ready(ctx)
	var gaveUp *retry.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &gaveUp) {
		t.Error(err)
	}
	fact.Error(t, err, "500 Internal Server Error: etcd failed: reason withheld, poststarthook/rbac/bootstrap-roles failed: not finished")
	fact.NotIn(t, err.Error(), "ping")
}

// TestReadyWhileNothingListens: nothing listens until the API server's container runs.
func TestReadyWhileNothingListens(t *testing.T) {
	a := newAPI(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	r := a.client(t)
	r.admin = nil
	r.options.Endpoint = address
	late := httptest.NewUnstartedServer(a.Config.Handler)
	defer late.Close()
	started := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		again, err := net.Listen("tcp", address)
		if err == nil {
			_ = late.Listener.Close()
			late.Listener = again
			late.TLS = a.TLS.Clone()
			late.StartTLS()
		}
		started <- err
	})
	err = r.Ready(t.Context())
	if bound := <-started; bound != nil {
		t.Skip("somebody took the port:", bound)
	}
	if err != nil {
		t.Error(err)
	}
	r.admin.client.Client.CloseIdleConnections()
}

// TestStartingServerForbids: a 403 passes if the server isn't ready, or became ready just after it.
func TestStartingServerForbids(t *testing.T) {
	for name, c := range map[string]struct{ forbids, unready int }{"starting": {3, 2}, "just ready": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.put(t, pod("a", "n"))
			a.hook = func(r *http.Request, _ string) fakeapi.Fault {
				left := &c.forbids
				if r.URL.Path == "/readyz" {
					left = &c.unready
				}
				if *left--; *left < 0 {
					return nil
				}
				return fakeapi.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no rule")))
			}
			forbids, unready := c.forbids, c.unready
			list, err := a.client(t).PodsOn(t.Context(), "n")
			if err != nil || len(list) != 1 {
				t.Errorf("%d Pods, %v", len(list), err)
			}
			c.forbids, c.unready = forbids, unready
			a.put(t, NewNode("n"))
			if err := a.client(t).AwaitNode(t.Context(), "n", func(*corev1.Node, []corev1.Pod) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReadyServerForbids: a server that's ready, or doesn't know /readyz, is asked once more and then believed.
func TestReadyServerForbids(t *testing.T) {
	for name, readyz := range map[string]fakeapi.Fault{
		"ready":     nil,
		"no readyz": fakeapi.Refuse(apierrors.NewNotFound(schema.GroupResource{Resource: "readyz"}, "")),
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			asked := 0
			a.hook = func(r *http.Request, _ string) fakeapi.Fault {
				if r.URL.Path == "/readyz" {
					return readyz
				}
				asked++
				return fakeapi.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no rule")))
			}
			_, err := a.client(t).PodsOn(t.Context(), "n")
			if !apierrors.IsForbidden(err) || asked != 2 {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
}

func TestUntilSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := untilSettled(defaultPolicy(), settleTimeout)
		lasting := errors.New("x509: certificate signed by unknown authority")
		if !p.Retryable(lasting) {
			t.Error("the first one counts")
		}
		time.Sleep(settleTimeout - time.Nanosecond)
		if !p.Retryable(lasting) {
			t.Error("it counts too early")
		}
		time.Sleep(time.Nanosecond)
		if p.Retryable(lasting) {
			t.Error("still waiting")
		}
		if !p.Retryable(noAnswerError{errors.New("refused")}) || !p.Retryable(lasting) {
			t.Error("an error in between does not restart the count")
		}
	})
}

func selfSigned(t *testing.T, notAfter time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestWrongCertificates(t *testing.T) {
	good, goodPEM := selfSigned(t, time.Now().Add(time.Hour))
	old, oldPEM := selfSigned(t, time.Now().Add(-time.Minute))
	_, otherPEM := selfSigned(t, time.Now().Add(time.Hour))
	tests := []struct {
		name   string
		server tls.Certificate
		host   string
		ca     []byte
		text   string
		remedy []string
	}{
		{"another CA", good, "127.0.0.1", otherPEM,
			"unknown authority", []string{"CA", "admin.conf", "`slipway init phase kubeconfig all`"}},
		{"expired", old, "127.0.0.1", oldPEM,
			"expired", []string{"clocks", "`slipway certs check-expiration`"}},
		{"another name", good, "localhost", goodPEM,
			"localhost", []string{"apiServer.certSANs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{tt.server}}
			server.StartTLS()
			defer server.Close()
			url := strings.Replace(server.URL, "127.0.0.1", tt.host, 1)
			r := New(Options{Kubeconfig: writeKubeconfig(t, "admin", url, tt.ca), ReadFile: os.ReadFile, Timeout: 5 * time.Second})
			err := r.Ensure(t.Context(), configMap("c", nil))
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v; it should fail at once", err)
			}
			for _, want := range []string{tt.text, "create ConfigMap kube-system/c: "} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			for _, want := range tt.remedy {
				if remedy := fault.Remedy(err); !strings.Contains(remedy, want) || strings.Contains(err.Error(), remedy) {
					t.Errorf("remedy %q of %v\nlacks %q", remedy, err, want)
				}
			}
		})
	}
}

func TestPasses(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 0)
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"connection refused", noAnswerError{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, true},
		{"name server in trouble", noAnswerError{&net.DNSError{IsTemporary: true}}, true},
		{"no such name", noAnswerError{&net.DNSError{IsNotFound: true}}, false},
		{"wrapped", errors.Wrap(busy, "get x"), true},
		{"our own fault", errors.New("encode"), false},
	}
	for _, tt := range tests {
		if got := isRetryable(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestStatusErrorKeepsRetryAfter(t *testing.T) {
	a := newAPI(t)
	c, err := a.client(t).connect()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429, "message": "busy"}`,
		`Too many requests, please try again later.`,
	} {
		a.faults[http.MethodGet] = []fakeapi.Fault{answers(429, "Retry-After: 7", body)}
		_, err := c.do(t.Context(), c.client.Get().AbsPath("/readyz"))
		if got := retryAfter(errors.WithMessage(err, "get x")); got != 7*time.Second || len(a.seen()) != 1 {
			t.Errorf("%s: %s after %v: %v", body, got, a.seen(), err)
		}
		a.requests = nil
	}
}

func TestRefusedAdvice(t *testing.T) {
	gaveUp := &retry.Error{Last: noAnswerError{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, Cause: context.DeadlineExceeded}
	err := errors.Wrap((&conn{}).advise(gaveUp), "phase x")
	if got := fault.Remedy(err); !strings.Contains(got, "`slipway diagnose`") || strings.Contains(err.Error(), "slipway") {
		t.Errorf("remedy %q of %v", got, err)
	}
}

func TestUnauthorizedAdvice(t *testing.T) {
	end := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, cert := selfSigned(t, end)
	node := &conn{kubeconfig: "kubelet.conf", clientCert: &x509.Certificate{Subject: pkix.Name{CommonName: nodeUser + "worker-1"}, NotAfter: end}}
	_, remedy := node.adviseUnauthorized(end.Add(time.Hour))
	fact.In(t, remedy, "`slipway token create --print-join-command`", "`slipway certs renew all --restart`")
	tests := []struct {
		cert           []byte
		now            time.Time
		reason, remedy []string
	}{
		{cert, end.Add(time.Hour), []string{"client certificate", "admin.conf", "2026-01-02T03:04:05Z"}, []string{"`slipway certs renew all`"}},
		{cert, end.Add(-time.Minute), []string{"credentials", "admin.conf"}, []string{"this cluster"}},
		{nil, end, []string{"credentials", "admin.conf"}, []string{"this cluster"}},
	}
	for _, tt := range tests {
		c := &conn{kubeconfig: "admin.conf", clientCert: clientCert(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: tt.cert}})}
		reason, remedy := c.adviseUnauthorized(tt.now)
		fact.In(t, reason, tt.reason...)
		fact.In(t, remedy, tt.remedy...)
	}
}

// TestForbiddenAdvice: a kubelet's credentials have the rights of its own node, if the API server gives nodes any.
func TestForbiddenAdvice(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "w-2", errors.New(why))
	}
	tests := map[string]struct {
		user           string
		err            error
		reason, remedy []string
	}{
		"an administrator":       {"kubernetes-admin", forbidden("no"), []string{"x.conf"}, nil},
		"a node without rights":  {"system:node:w-1", forbidden("no"), []string{"system:node:w-1"}, []string{"--authorization-mode", "Node,RBAC", "AuthorizationConfiguration"}},
		"of another node":        {"system:node:w-1", forbidden("node 'w-1' cannot read 'w-2', only its own Node object"), []string{"x.conf", "node w-1"}, []string{"`slipway reset`"}},
		"that is another node's": {"system:node:w-1", forbidden(`node "w-1" is not allowed to modify node "w-2"`), []string{"x.conf", "node w-1"}, []string{"`slipway reset`"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "client.pem")
			if err := os.WriteFile(file, clientOf(t, tt.user), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &conn{kubeconfig: "x.conf", clientCert: clientCert(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: file}})}
			reason, remedy := c.adviceFor(tt.err)
			fact.In(t, reason, tt.reason...)
			fact.In(t, remedy, tt.remedy...)
			if others := strings.Contains(remedy, "kubeconfig"); others != (tt.remedy == nil) {
				t.Errorf("remedy %q", remedy)
			}
		})
	}
}

func clientOf(t *testing.T, user string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestUnknownName: a name is looked up again for a while before it counts as unknown.
func TestUnknownName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := defaultPolicy(), noAnswerError{&net.DNSError{IsNotFound: true}}
		time.Sleep(nameTimeout - time.Nanosecond)
		if !p.Retryable(err) {
			t.Error("it gives up too early")
		}
		time.Sleep(time.Nanosecond)
		if p.Retryable(err) {
			t.Error("it doesn't give up")
		}
	})
}
