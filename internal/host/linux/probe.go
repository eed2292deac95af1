// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// probeTimeout is how long the kubelet gives the components, too (timeoutSeconds of their probes).
	probeTimeout = 15 * time.Second
	// idleTimeout is longer than a wait's pauses between two probes.
	idleTimeout = 5 * time.Second
	// fetchBody is more than any of these endpoints returns, probeBody as much of it as is worth showing.
	fetchBody = 64 << 10
	probeBody = 4 << 10
)

func (h *Host) Probe(ctx context.Context, p host.Probe) error {
	_, err := h.Fetch(ctx, p)
	return err
}

func (h *Host) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	resp, err := h.get(ctx, p)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, fetchBody))
	if resp.StatusCode != http.StatusOK {
		text := strings.TrimSpace(string(body[:min(len(body), probeBody)]))
		return nil, &host.ProbeError{URL: p.URL, Status: resp.StatusCode, Body: text}
	}
	return body, errors.Wrapf(err, "GET %s", p.URL)
}

func (h *Host) Date(ctx context.Context, p host.Probe) (time.Time, error) {
	resp, err := h.get(ctx, p)
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	return at, errors.Wrapf(err, "GET %s: the Date header of the response", p.URL)
}

func (h *Host) LookupHost(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for i, a := range addrs {
		addrs[i] = a.Unmap() // the resolver gives IPv4 in IPv6's form
	}
	return addrs, err
}

func (h *Host) Answers(ctx context.Context, at netip.AddrPort) (bool, error) {
	conn, err := dial.TCP(ctx, at.String())
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.As(err, new(dial.RefusedError)):
		return true, nil
	case errors.As(err, new(dial.SilentError)):
		return false, nil
	}
	return false, err
}

// get sends one request. Its errors name the method and the URL.
func (h *Host) get(ctx context.Context, p host.Probe) (*http.Response, error) {
	transport := h.health
	if len(p.CA) > 0 || len(p.ClientCert) > 0 {
		verified, err := verifying(p)
		if err != nil {
			return nil, err
		}
		// One connection per request: a reused connection doesn't show the server's present certificate.
		transport = &http.Transport{TLSClientConfig: verified, DisableKeepAlives: true, DialContext: connect}
	}
	client := &http.Client{
		Timeout:       probeTimeout,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return nil, errors.Wrap(err, "probe")
	}
	return client.Do(req)
}

// healthTransport is for probes that accept any certificate and have none. It keeps its connections: a new TLS session costs the
// server a signature, which is time a starting component doesn't have. A connection ends with its server's process, so the next
// probe shows whether another program listens.
func healthTransport() *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		IdleConnTimeout: idleTimeout,
		DialContext:     connect,
	}
}

// connect asks all addresses of a name at once, within a probe's time. http.Transport would let each of them wait for as long as the
// kernel does, two minutes, even if the request has been given up.
func connect(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return dial.TCP(ctx, address)
}

// verifying is the TLS configuration of a probe with a CA or a certificate.
func verifying(p host.Probe) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: len(p.CA) == 0}
	if len(p.CA) > 0 {
		c.RootCAs, c.ServerName = x509.NewCertPool(), p.ServerName
		if !c.RootCAs.AppendCertsFromPEM(p.CA) {
			return nil, errors.Errorf("probe %s: the CA bundle holds no certificate", p.URL)
		}
	}
	if len(p.ClientCert) > 0 {
		pair, err := tls.X509KeyPair(p.ClientCert, p.ClientKey)
		if err != nil {
			return nil, errors.Wrapf(err, "probe %s: client certificate", p.URL)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
