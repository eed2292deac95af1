// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/redact"
)

const (
	// answerTimeout bounds one request, so that a hanging request is repeated.
	answerTimeout = 20 * time.Second
	maxBody       = 1 << 20
)

// newClient trusts only roots; nil means the host's own. With blind it trusts any server: then the answer itself must be
// verified.
func newClient(roots []*x509.Certificate, blind bool) *http.Client {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: blind} //nolint:gosec // by token and pin, see ByToken
	if roots != nil {
		cfg.RootCAs = x509.NewCertPool()
		for _, c := range roots {
			cfg.RootCAs.AddCert(c)
		}
	}
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, ForceAttemptHTTP2: true, DialContext: connect, OnProxyConnectResponse: proxyAnswer},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Scheme != "https" || blind || len(via) > 5 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// proxyAnswer names a proxy that refuses to connect. Otherwise the error would be no more than its status, such as "Forbidden".
func proxyAnswer(_ context.Context, proxy *url.URL, req *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return errors.Errorf("the proxy %s does not connect to %s: %s; if the API server needs no proxy, add its address to NO_PROXY", redact.Proxy(proxy.String()), req.Host, resp.Status)
}

// connect asks all addresses of a name at once. http.Transport would let each of them wait for as long as the kernel does, two minutes,
// even if the request has been given up.
func connect(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return dial.TCP(ctx, address)
}

type answer struct {
	body []byte
	date time.Time // zero if the response has none
}

// skew is how far the server's clock is ahead of now.
func (a answer) skew(now time.Time) time.Duration {
	if a.date.IsZero() {
		return 0
	}
	return a.date.Sub(now)
}

// fetch sends one request. An *Error is unlikely to pass (see pace), and any other error may pass.
func fetch(ctx context.Context, client *http.Client, url string) (answer, error) {
	started := time.Now()
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, errors.New("the address is not valid") // the URL may contain a password
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "slipway")
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, connectionError(limited, started, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return answer{}, connectionError(limited, started, err)
	case resp.StatusCode != http.StatusOK:
		return answer{}, statusError(resp.StatusCode)
	case len(body) > maxBody:
		return answer{}, failure(NotKube, "", "the answer is longer than 1 MiB")
	}
	date, _ := http.ParseTime(resp.Header.Get("Date"))
	return answer{body, date}, nil
}

func statusError(code int) error {
	text := http.StatusText(code)
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return failure(Forbidden, "", "the server answers %d %s: anonymous users must be allowed to read ConfigMap kube-public/cluster-info; allow it, or join with --discovery-file", code, text)
	case code == http.StatusNotFound:
		return failure(NoInfo, "", "the server answers 404 %s: it has no ConfigMap kube-public/cluster-info; `slipway init phase bootstrap-token` on a control plane creates it", text)
	case code >= 500 || code == http.StatusTooManyRequests:
		return errors.Errorf("the server answers %d %s", code, text)
	}
	return failure(NotKube, "", "the server answers %d %s: is this a Kubernetes API server?", code, text)
}

// connectionError separates errors that another try can't fix from errors that may pass.
func connectionError(limited context.Context, started time.Time, err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) { // its URL may contain a password, and where names it already
		err = u.Err
	}
	var record tls.RecordHeaderError
	var verification *tls.CertificateVerificationError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &hostname):
		return &Error{WrongServer, "", "the server's certificate is not valid for this address; use an address that it names, or add this one to apiServer.certSANs", err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &Error{ClockApart, "", "the server's certificate is not valid at this host's time; check the clocks and the certificate's dates", err}
	case errors.As(err, &verification):
		return &Error{WrongServer, "", "the server's certificate is not signed by a trusted certificate", err}
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return failure(NotKube, "", "the server does not speak TLS: is this the port of an API server?")
	case limited.Err() != nil:
		return errors.Errorf("no answer within %s", time.Since(started).Round(time.Second/10))
	}
	var netErr *net.OpError
	if errors.As(err, &netErr) {
		return netErr
	}
	return errors.Cause(err)
}
