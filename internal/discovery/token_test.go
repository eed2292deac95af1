// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/fact"
)

func respond(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func kubeconfigWith(cluster map[string]any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Config", "clusters": []any{map[string]any{"name": "", "cluster": cluster}}}
}

// TestHostileJoin: whatever the server answers, discovery trusts only data that token and pin vouch for, and each failure has its
// own message.
func TestHostileJoin(t *testing.T) {
	const otherSecret = "fedcba9876543210"
	tests := []struct {
		name string
		make func(t *testing.T, f *fake)
		pins func(f *fake) []string // nil: the right one
		kind Kind
		says string
	}{
		{"wrong pin", nil, func(*fake) []string { return []string{"sha256:" + strings.Repeat("0", 64)} }, WrongPin, "cluster-info | hashes"},
		{"pin of the server's own certificate", nil, func(f *fake) []string { return []string{f.leaf.pin()} }, WrongPin, "another cluster"},
		{"tampered cluster-info", func(_ *testing.T, f *fake) { f.info = strings.Replace(f.info, "192.0.2.1", "192.0.2.6", 1) }, nil, BadSignature, "cluster-info | ID abcdef"},
		{"tampered signature", func(_ *testing.T, f *fake) { f.signature = f.signature[:len(f.signature)-4] + "AAAA" }, nil, BadSignature, "tampered"},
		{"signature of another secret", func(t *testing.T, f *fake) { f.sign(t, otherSecret) }, nil, BadSignature, "secret | mistyped"},
		{"empty signature", func(_ *testing.T, f *fake) {
			f.answer = respond(200, `{"kind":"ConfigMap","metadata":{"name":"cluster-info"},"data":{"kubeconfig":"a","jws-kubeconfig-abcdef":""}}`)
		}, nil, BadSignature, "cluster-info"},
		{"signature replayed from another cluster", func(t *testing.T, f *fake) {
			f.signature = newFake(t).signature
		}, nil, BadSignature, "cluster-info"},
		{"signature of another token under this ID", func(_ *testing.T, f *fake) {
			f.signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFhYWFhYSJ9..aaaa"
		}, nil, BadSignature, "cluster-info"},
		{"signature with algorithm none", func(_ *testing.T, f *fake) { f.signature = "eyJhbGciOiJub25lIn0.." }, nil, BadSignature, "cluster-info"},
		{"unknown token", func(_ *testing.T, f *fake) { f.signature = "" }, nil, UnknownToken, "expired | unknown | usage"},
		{"two clusters", func(t *testing.T, f *fake) {
			f.describe(t, "https://192.0.2.1:6443", f.ca.pem(), "https://192.0.2.6:6443", f.ca.pem())
		}, nil, ManyClusters, "2 clusters"},
		{"no cluster", func(t *testing.T, f *fake) { f.describe(t) }, nil, ManyClusters, "0 clusters"},
		{"server without TLS", func(t *testing.T, f *fake) { f.describe(t, "http://192.0.2.1:6443", f.ca.pem()) }, nil, Malformed, "https URL"},
		{"server with a password", func(t *testing.T, f *fake) { f.describe(t, "https://a:b@192.0.2.1", f.ca.pem()) }, nil, Malformed, "https URL"},
		{"no CA", func(t *testing.T, f *fake) { f.describe(t, "https://192.0.2.1:6443", "") }, nil, Malformed, "certificate-authority-data"},
		{"a key beside the CA", func(t *testing.T, f *fake) {
			f.describe(t, "https://192.0.2.1:6443", f.ca.pem()+"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}, nil, Malformed, "other than | certificates"},
		{"malformed CA", func(t *testing.T, f *fake) {
			f.describe(t, "https://192.0.2.1:6443", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, nil, Malformed, "certificate 1 | malformed"},
		{"TLS not to be verified", func(t *testing.T, f *fake) {
			f.setInfo(t, kubeconfigWith(map[string]any{"server": "https://192.0.2.1", "insecure-skip-tls-verify": true}))
		}, nil, Malformed, "insecure-skip-tls-verify"},
		{"no kubeconfig inside", func(t *testing.T, f *fake) { f.setInfo(t, []string{"a"}) }, nil, Malformed, "kubeconfig"},
		{"no key kubeconfig", func(_ *testing.T, f *fake) {
			f.answer = respond(200, `{"kind":"ConfigMap","metadata":{"name":"cluster-info"}}`)
		}, nil, Malformed, `key "kubeconfig"`},
		{"another object", func(_ *testing.T, f *fake) { f.answer = respond(200, `{"kind":"Secret"}`) }, nil, NotKube, "ConfigMap cluster-info"},
		{"garbage", func(_ *testing.T, f *fake) { f.answer = respond(200, "<html>") }, nil, NotKube, "Kubernetes API"},
		{"endless answer", func(_ *testing.T, f *fake) { f.answer = respond(200, strings.Repeat("a", 2<<20)) }, nil, NotKube, "1 MiB"},
		{"redirect", func(_ *testing.T, f *fake) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://192.0.2.6/", http.StatusFound)
			}
		}, nil, NotKube, "302 Found"},
		{"no TLS", func(_ *testing.T, f *fake) { f.plain = true }, nil, NotKube, "TLS"},
		{"401", func(_ *testing.T, f *fake) { f.answer = respond(401, "") }, nil, Forbidden, "401 Unauthorized | anonymous"},
		{"403", func(_ *testing.T, f *fake) { f.answer = respond(403, "") }, nil, Forbidden, "403 Forbidden"},
		{"404", func(_ *testing.T, f *fake) { f.answer = respond(404, "") }, nil, NoInfo, "ConfigMap kube-public/cluster-info"},
		{"500", func(_ *testing.T, f *fake) { f.answer = respond(500, "") }, nil, Unreachable, "500 Internal Server Error"},
		{"hangs", func(_ *testing.T, f *fake) {
			f.answer = func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				panic(http.ErrAbortHandler) // an answer might still be heard
			}
		}, nil, Unreachable, "no answer"},
		{"answers slowly", func(_ *testing.T, f *fake) {
			f.answer = func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(10 * time.Millisecond)
				}
			}
		}, nil, Unreachable, "no answer"},
		{"certificate of another CA", func(t *testing.T, f *fake) {
			f.leaf = authority{}.sign(t, asCA).sign(t, asServer)
		}, nil, WrongServer, "certificate | trusted"},
		{"certificate of an unpinned CA beside the right one", func(t *testing.T, f *fake) {
			other := authority{}.sign(t, func(c *x509.Certificate) { asCA(c); c.Subject.CommonName = "other" })
			f.leaf = other.sign(t, asServer)
			f.describe(t, "https://192.0.2.1:6443", f.ca.pem()+other.pem())
		}, nil, WrongServer, "certificate | trusted"},
		{"certificate of another name", func(t *testing.T, f *fake) {
			f.leaf = f.ca.sign(t, func(c *x509.Certificate) { c.DNSNames = []string{"example.org"} })
		}, nil, WrongServer, "apiServer.certSANs"},
		{"certificate that is not valid yet", func(t *testing.T, f *fake) {
			f.leaf = f.ca.sign(t, func(c *x509.Certificate) { asServer(c); c.NotBefore = time.Now().Add(30 * time.Minute) })
		}, nil, ClockApart, "certificate | not valid | time"},
		{"certificate that is not valid yet, by a clock ahead", func(t *testing.T, f *fake) {
			f.leaf = f.ca.sign(t, func(c *x509.Certificate) { asServer(c); c.NotBefore = time.Now().Add(30 * time.Minute) })
			f.date = time.Hour
		}, nil, ClockApart, "behind"},
		{"clock behind", func(_ *testing.T, f *fake) { f.date = 10 * time.Minute }, nil, ClockApart, "behind"},
		{"clock ahead", func(_ *testing.T, f *fake) { f.date = -10 * time.Minute }, nil, ClockApart, "ahead"},
		{"two answers", func(t *testing.T, f *fake) {
			f.answer = func(w http.ResponseWriter, _ *http.Request) {
				if f.count == 2 {
					f.describe(t, "https://192.0.2.6:6443", f.ca.pem())
				}
				f.tell(w)
			}
		}, nil, Changed, "different"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			if tt.make != nil {
				tt.make(t, f)
			}
			pins := []string{f.ca.pin()}
			if tt.pins != nil {
				pins = tt.pins(f)
			}
			limit := 20 * time.Second
			if tt.kind == Unreachable {
				limit = 3 * time.Second
			}
			found, err := join(t, f.start(t), pins, limit)
			var failed *Error
			if !errors.As(err, &failed) || failed.Kind != tt.kind {
				t.Errorf("got %v, want %s: %q", err, tt.kind, tt.says)
			}
			fact.Error(t, err, append(fact.Of(tt.says), "127.0.0.1:")...)
			if strings.Contains(err.Error(), tokenSecret) || strings.Contains(err.Error(), otherSecret) {
				t.Errorf("%q contains the token", err)
			}
			if found.Server != "" || found.CA != nil {
				t.Errorf("trusts %+v", found)
			}
		})
	}
}

func join(t *testing.T, endpoint string, pins []string, limit time.Duration) (Cluster, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return ByToken(ctx, Token{Endpoint: endpoint, ID: tokenID, Secret: tokenSecret, Pins: pins, NoPins: pins == nil,
		Now: time.Now, Progress: quiet, pace: quick})
}

func TestJoinRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, err = join(t, address, []string{"sha256:00"}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

// TestJoin shows the joins that succeed, and the certificates they trust.
func TestJoin(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, f *fake) (pins []string, trusted []authority)
	}{
		{"plain", func(_ *testing.T, f *fake) ([]string, []authority) { return []string{f.ca.pin()}, []authority{f.ca} }},
		{"pin in upper case, beside another", func(_ *testing.T, f *fake) ([]string, []authority) {
			return []string{"sha256:00", "sha256:" + strings.ToUpper(f.ca.pin()[7:])}, []authority{f.ca}
		}},
		{"no pin", func(_ *testing.T, f *fake) ([]string, []authority) { return nil, []authority{f.ca} }},
		{"another CA beside the right one", func(t *testing.T, f *fake) ([]string, []authority) {
			other := authority{}.sign(t, func(c *x509.Certificate) { asCA(c); c.Subject.CommonName = "other" })
			f.describe(t, "https://192.0.2.1:6443", other.pem()+f.ca.pem())
			return []string{f.ca.pin()}, []authority{f.ca}
		}},
		{"a CA below the pinned one", func(t *testing.T, f *fake) ([]string, []authority) {
			below := f.ca.sign(t, func(c *x509.Certificate) { asCA(c); c.Subject.CommonName = "below" })
			f.leaf = below.sign(t, asServer)
			f.describe(t, "https://192.0.2.1:6443", f.ca.pem()+below.pem())
			return []string{f.ca.pin()}, []authority{f.ca, below}
		}},
		{"two pinned CAs", func(t *testing.T, f *fake) ([]string, []authority) {
			next := authority{}.sign(t, func(c *x509.Certificate) { asCA(c); c.Subject.CommonName = "next" })
			f.describe(t, "https://192.0.2.1:6443", f.ca.pem()+next.pem())
			return []string{f.ca.pin(), next.pin()}, []authority{f.ca, next}
		}},
		{"signed late", func(_ *testing.T, f *fake) ([]string, []authority) {
			signature := f.signature
			f.signature = ""
			f.answer = func(w http.ResponseWriter, _ *http.Request) {
				if f.count == 2 {
					f.signature = signature
				}
				f.tell(w)
			}
			return []string{f.ca.pin()}, []authority{f.ca}
		}},
		{"up late", func(_ *testing.T, f *fake) ([]string, []authority) {
			f.answer = func(w http.ResponseWriter, _ *http.Request) {
				if f.count < 5 {
					w.WriteHeader([]int{500, 503, 403, 429}[f.count-1])
					return
				}
				f.tell(w)
			}
			return []string{f.ca.pin()}, []authority{f.ca}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			pins, trusted := tt.make(t, f)
			found, err := join(t, f.start(t), pins, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if found.Server != "https://192.0.2.1:6443" || len(found.CA) != len(trusted) {
				t.Fatalf("found %s with %d certificates", found.Server, len(found.CA))
			}
			for i, a := range trusted {
				if !found.CA[i].Equal(a.cert) {
					t.Errorf("certificate %d is %s", i, found.CA[i].Subject)
				}
			}
		})
	}
}
