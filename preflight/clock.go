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
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// clockGood is the largest difference that isn't reported. etcd, leases and logs tolerate it.
	clockGood = 3 * time.Second
	// clockBackdate is how long before its issue a certificate is valid: kube-controller-manager's signer and this program allow
	// for clocks that differ by as much.
	clockBackdate = 5 * time.Minute
)

// clock compares this host's clock with the API server's: for a join, each side's new certificates must be valid on the other.
func clock(ctx context.Context, h View, n *config.Node) []fault.Finding {
	if n.Join == nil || n.Join.Server == "" {
		return skip("there is no API server to compare clocks with")
	}
	now := h.Now()
	if begins := begin(n.Join.CA); now.Before(begins) {
		return fail("this host's clock shows %s, but the cluster's CA is only valid from %s", stamp(now), stamp(begins)).remedy(syncClocks)
	}
	theirs, err := h.Date(ctx, host.Probe{URL: n.Join.Server + "/version", CA: n.Join.CA})
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return unasked("the API server's clock")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fail("the API server's certificate is not valid at this host's time, %s: %v", stamp(now), invalid).
			remedy(syncClocks + ", or renew that certificate")
	case err != nil:
		return warn("cannot read the API server's clock: %v", err).remedy("check that this host can reach %s", n.Join.Server)
	}
	return compareClocks(n, h.Now(), theirs)
}

const syncClocks = "synchronize the clocks of both hosts with chrony or systemd-timesyncd"

func compareClocks(n *config.Node, ours, theirs time.Time) []fault.Finding {
	// The server truncates its time to the second, so it was up to a second later.
	ahead, behind := ours.Sub(theirs)-time.Second, theirs.Sub(ours)
	ahead, behind = ahead.Round(time.Second), behind.Round(time.Second)
	switch {
	case behind > clockBackdate:
		return fail("this host's clock is %s behind the API server's, so certificates that the cluster issues now are not valid here yet", behind).remedy(syncClocks)
	case ahead > clockBackdate && n.ControlPlane:
		return fail("this host's clock is %s ahead of the API server's, so certificates that are issued here are not valid there yet", ahead).remedy(syncClocks)
	case behind > clockGood:
		return warn("this host's clock is %s behind the API server's", behind).remedy(syncClocks)
	case ahead > clockGood:
		return warn("this host's clock is %s ahead of the API server's", ahead).remedy(syncClocks)
	}
	return nil
}

// begin returns when the last certificate of a PEM bundle becomes valid.
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
