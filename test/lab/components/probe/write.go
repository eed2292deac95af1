// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// serviceAccount is where the kubelet puts a Pod's credentials.
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"
	// interval is from the start of one write to that of the next.
	interval = 100 * time.Millisecond
	// writeLimit is long enough for an API server to say why a write failed.
	writeLimit = 30 * time.Second
)

func write(ctx context.Context, url string, out io.Writer) error {
	ca, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(serviceAccount + "token")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	// As in client-go, connections are kept and speak HTTP/2.
	client := &http.Client{Timeout: writeLimit, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}
	w := writer{client: client, url: url, token: string(token), out: out}
	for ticker := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.step(ctx)
		}
	}
}

type writer struct {
	client         *http.Client
	url, token     string
	out            io.Writer
	writes, failed int
	slowest        time.Duration
	gap            time.Duration // the longest between two writes that succeeded
	succeeded      time.Time     // when the last one did
	lastSaid       time.Time
}

func (w *writer) step(ctx context.Context) {
	started := time.Now()
	err := w.patch(ctx)
	for errors.As(err, new(askedToRetry)) && time.Since(started) < writeLimit && ctx.Err() == nil {
		time.Sleep(time.Second)
		err = w.patch(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	w.writes++
	if err == nil {
		if gap := time.Since(w.succeeded); !w.succeeded.IsZero() && gap > w.gap {
			w.gap = gap
		}
		w.succeeded = time.Now()
	}
	if took := time.Since(started); took > w.slowest {
		w.slowest = took
	}
	if err != nil {
		w.failed++
		fmt.Fprintf(w.out, "%s failed after %s: %v\n", started.UTC().Format(time.RFC3339Nano), time.Since(started), err)
	}
	if time.Since(w.lastSaid) >= time.Second {
		w.lastSaid = time.Now()
		fmt.Fprintf(w.out, "writes %d failed %d slowest %s longest gap %s\n", w.writes, w.failed, w.slowest, w.gap)
	}
}

func (w *writer) patch(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"data":{"writes":"%d"}}`, w.writes)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	request.Header.Set("Authorization", "Bearer "+w.token)
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusOK {
		return err
	}
	err = fmt.Errorf("%s: %.200s", response.Status, answer)
	if response.Header.Get("Retry-After") != "" {
		return askedToRetry{err}
	}
	return err
}

// askedToRetry is the error of a server that did nothing, such as one that is about to stop, and says when to ask again.
// Kubernetes' clients do so by themselves.
type askedToRetry struct{ error }
