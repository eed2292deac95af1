// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// clockGood is how far clocks may be apart without a word. etcd, leases
	// and logs bear that.
	clockGood = 3 * time.Second
	// clockBackdate is how long before its making a certificate of the
	// cluster begins: the signer of kube-controller-manager, and this program,
	// allow for clocks that far apart.
	clockBackdate = 5 * time.Minute
)

// clock holds this host's clock against the API server's. Where certificates
// made by one would not be valid yet by the other, the join cannot end well.
func clock(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		if n.Join == nil || n.Join.Server == "" {
			return skip("no API server is known to compare with")
		}
		const mend = "synchronise the clocks of both (chrony, systemd-timesyncd)"
		now := h.Now()
		if begins := begin(n.Join.CA); now.Before(begins) {
			return fault("this host's clock says %s, and the cluster's CA is valid only from %s: %s", stamp(now), stamp(begins), mend)
		}
		theirs, err := h.Date(ctx, host.Probe{URL: n.Join.Server + "/version", CA: n.Join.CA})
		var invalid x509.CertificateInvalidError
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("the API server's clock")
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			return fault("the API server's certificate is not valid at this host's time, %s (%v): %s, or renew that certificate", stamp(now), invalid, mend)
		case err != nil:
			return warn("the API server's clock cannot be told: %v", err)
		}
		return compareClocks(n, h.Now(), theirs, mend)
	}
}

func compareClocks(n *config.Node, ours, theirs time.Time, mend string) []Finding {
	// The server cut its time to the second, so it was up to one later.
	ahead, behind := ours.Sub(theirs)-time.Second, theirs.Sub(ours)
	ahead, behind = ahead.Round(time.Second), behind.Round(time.Second)
	switch {
	case behind > clockBackdate:
		return fault("this host's clock is %s behind the API server's, so that the certificates that the cluster issues now would not be valid here yet: %s", behind, mend)
	case ahead > clockBackdate && n.ControlPlane:
		return fault("this host's clock is %s ahead of the API server's, so that the certificates that are made here would not be valid there yet: %s", ahead, mend)
	case behind > clockGood:
		return warn("this host's clock is %s behind the API server's: %s", behind, mend)
	case ahead > clockGood:
		return warn("this host's clock is %s ahead of the API server's: %s", ahead, mend)
	}
	return nil
}

// begin is when the last of the certificates in a PEM bundle becomes valid.
func begin(bundle []byte) time.Time {
	var last time.Time
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return last
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotBefore.After(last) {
			last = c.NotBefore
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
