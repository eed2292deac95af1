// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

func TestClockSkew(t *testing.T) {
	const remedy = " | chrony | systemd-timesyncd"
	ca := selfSigned(t, healthy(t).Has.Time.Add(-time.Hour))
	expired := &url.Error{Op: "Get", URL: "https://192.0.2.1:6443/version", Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "too early"}}
	for _, tt := range []struct {
		name         string
		ahead        time.Duration // of the API server's clock
		controlPlane bool
		err          error
		ca           []byte
		want         []string
	}{
		{name: "together", ahead: 400 * time.Millisecond},
		{name: "a second, as the date is cut", ahead: time.Second},
		{name: "behind", ahead: -10 * time.Second, want: []string{"[WARNING ClockSkew] | 10s behind" + remedy}},
		{name: "ahead", ahead: 4*time.Minute + time.Second, want: []string{"[WARNING ClockSkew] | 4m0s ahead" + remedy}},
		{name: "far behind", ahead: -6 * time.Minute,
			want: []string{"[ERROR ClockSkew] | 6m0s behind" + remedy}},
		{name: "a worker far ahead", ahead: 6*time.Minute + time.Second, want: []string{"[WARNING ClockSkew] | 6m0s ahead" + remedy}},
		{name: "a control plane far ahead", ahead: 6*time.Minute + time.Second, controlPlane: true,
			want: []string{"[ERROR ClockSkew] | 6m0s ahead" + remedy}},
		{name: "before the CA", ca: selfSigned(t, healthy(t).Has.Time.Add(time.Hour)),
			want: []string{"[ERROR ClockSkew] | 2026-05-04T03:02:01Z | CA | 2026-05-04T04:02:01Z" + remedy}},
		{name: "outside the server's certificate", err: expired,
			want: []string{"[ERROR ClockSkew] | 2026-05-04T03:02:01Z | x509 | expired | too early" + remedy + " | renew"}},
		{name: "no answer", err: errors.New("refused"), want: []string{"[WARNING ClockSkew] | refused | https://192.0.2.1:6443"}},
		{name: "dry run", err: host.ErrNotInPlan, want: []string{"[UNASKED ClockSkew] | API server's clock"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, n := healthy(t), workerNode()
			n.ControlPlane = tt.controlPlane
			n.Join.CA = ca
			if tt.ca != nil {
				n.Join.CA = tt.ca
			}
			h.Has.Date = h.Has.Time.Add(-tt.ahead).Truncate(time.Second)
			if tt.err != nil {
				h.Fail["Date"] = tt.err
			}
			check := Check{Name: "ClockSkew", Run: with(n, clock)}
			expect(t, check.findings(t.Context(), h), tt.want...)
		})
	}
}

func selfSigned(t *testing.T, begins time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begins, NotAfter: begins.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
