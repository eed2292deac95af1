// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	// label marks the clients' ConfigMaps.
	label = "slipway.test/written"
	// keys is how many writes go to a ConfigMap: a larger one would make each write slower than the one before.
	keys = 100
	// writeLimit bounds an attempt to write, readLimit a look at all writes. A node's program has a minute to end.
	writeLimit = 9 * time.Second
	readLimit  = 20 * time.Second
	// patience is how long a client asks again if the server says so.
	patience = 30 * time.Second
)

// play starts the clients, says so once each has made a write, and reports when ctx ends.
func (o Order) play(ctx context.Context, out *json.Encoder) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	credentials, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return err
	}
	all := make([]*client, o.Count)
	for i := range all {
		all[i] = newClient(o.URL, fmt.Sprintf("written-%d", i+1), credentials)
		if err := all[i].write(ctx); err != nil {
			return err
		}
	}
	if err := out.Encode(true); err != nil {
		return err
	}
	var writing sync.WaitGroup
	for _, c := range all {
		writing.Go(func() { c.writeAll(ctx, o.Interval) })
	}
	writing.Wait()
	ctx = context.WithoutCancel(ctx)
	report, err := look(ctx, all)
	if err != nil {
		return err
	}
	err = all[0].until(func() error {
		return all[0].send(ctx, http.MethodDelete, configMaps+"?labelSelector="+label, "", nil, io.Discard)
	})
	if err != nil {
		return err
	}
	return out.Encode(report)
}

// client writes keys to ConfigMaps of its own, each key once.
type client struct {
	Report
	http  *http.Client
	url   string // of the API
	name  string
	next  int             // the number of the next write
	made  map[string]bool // its ConfigMaps
	told  []int           // the numbers of the confirmed writes
	acked time.Time       // when the last of them was confirmed
}

// newClient keeps its connection and speaks HTTP/2, as client-go does.
func newClient(url, name string, credentials *tls.Config) *client {
	return &client{
		http: &http.Client{Timeout: writeLimit, Transport: &http.Transport{TLSClientConfig: credentials.Clone(), ForceAttemptHTTP2: true}},
		url:  url, name: name, made: map[string]bool{},
	}
}

func (c *client) writeAll(ctx context.Context, interval time.Duration) {
	for ticker := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
			_ = c.write(context.WithoutCancel(ctx)) // it's in the report
		}
	}
}

// write makes the next write, and counts it.
func (c *client) write(ctx context.Context) error {
	n, started := c.next, time.Now()
	c.next++
	err := c.confirm(ctx, n)
	if err != nil {
		c.Failed = append(c.Failed, fmt.Sprintf("%s: write %d of %s failed after %s: %v", started.UTC().Format(time.RFC3339Nano), n, c.name, time.Since(started), err))
		return err
	}
	c.Confirmed++
	c.told = append(c.told, n)
	c.Slowest = max(c.Slowest, time.Since(started))
	if !c.acked.IsZero() {
		c.Gap = max(c.Gap, time.Since(c.acked))
	}
	c.acked = time.Now()
	return nil
}

// confirm does what any client does before it fails: it waits if the server says so, and uses another connection, once, if this one
// breaks.
func (c *client) confirm(ctx context.Context, n int) error {
	repeated := false
	for started := time.Now(); ; {
		err := c.attempt(ctx, n)
		switch {
		case errors.As(err, new(askedToWait)) && time.Since(started) < patience:
			c.Delayed++
			time.Sleep(time.Second)
		case errors.As(err, new(broken)) && !repeated:
			c.Repeated++
			repeated = true
		default:
			return err
		}
	}
}

// place is the ConfigMap and the key of a write.
func (c *client) place(n int) (object, key string) {
	return fmt.Sprintf("%s-%d", c.name, n/keys), fmt.Sprintf("write-%d", n)
}

// attempt adds a key, and makes the ConfigMap if it's missing. A repeated attempt does no harm.
func (c *client) attempt(ctx context.Context, n int) error {
	object, key := c.place(n)
	if !c.made[object] {
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{%q:""}}}`, object, label)
		if err := c.send(ctx, http.MethodPost, configMaps, "application/json", []byte(text), io.Discard); err != nil && !errors.As(err, new(alreadyThere)) {
			return err
		}
		c.made[object] = true
	}
	return c.send(ctx, http.MethodPatch, configMaps+"/"+object, "application/merge-patch+json", fmt.Appendf(nil, `{"data":{%q:"%d"}}`, key, n), io.Discard)
}

// broken is the error of a connection that ended before the answer; askedToWait that of a server that did nothing, such as one that
// is about to stop; alreadyThere that of an object that an earlier attempt has made.
type (
	broken       struct{ error }
	askedToWait  struct{ error }
	alreadyThere struct{ error }
)

// send makes a request, and copies the answer.
func (c *client) send(ctx context.Context, method, path, contentType string, body []byte, answer io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if failed := (*url.Error)(nil); errors.As(err, &failed) && !failed.Timeout() {
		return broken{err}
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 300 {
		if _, err := io.Copy(answer, response.Body); err != nil {
			return broken{err}
		}
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
	err = errors.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	switch {
	case response.Header.Get("Retry-After") != "":
		return askedToWait{err}
	case response.StatusCode == http.StatusConflict && method == http.MethodPost:
		return alreadyThere{err}
	}
	return err
}

// until repeats a request that isn't among those counted, until it succeeds: after the last change, an API server may still be
// starting.
func (c *client) until(request func() error) error {
	c.http.Timeout = readLimit
	for started := time.Now(); ; time.Sleep(time.Second) {
		if err := request(); err == nil || time.Since(started) > patience {
			return err
		}
	}
}

// look adds up the clients' reports, and finds what was confirmed and isn't there.
func look(ctx context.Context, all []*client) (Report, error) {
	var text bytes.Buffer
	err := all[0].until(func() error {
		text.Reset()
		return all[0].send(ctx, http.MethodGet, configMaps+"?labelSelector="+label, "", nil, &text)
	})
	if err != nil {
		return Report{}, err
	}
	var list corev1.ConfigMapList
	if err := json.Unmarshal(text.Bytes(), &list); err != nil {
		return Report{}, errors.Wrap(err, "the ConfigMaps")
	}
	there := map[string]map[string]string{}
	for _, cm := range list.Items {
		there[cm.Name] = cm.Data
	}
	return sum(all, there), nil
}

// sum compares what the clients were told with the ConfigMaps that are there.
func sum(all []*client, there map[string]map[string]string) (r Report) {
	for _, c := range all {
		r.Confirmed += c.Confirmed
		r.Repeated += c.Repeated
		r.Delayed += c.Delayed
		r.Failed = slices.Concat(r.Failed, c.Failed)
		r.Slowest, r.Gap = max(r.Slowest, c.Slowest), max(r.Gap, c.Gap)
		for _, n := range c.told {
			if object, key := c.place(n); there[object][key] != fmt.Sprint(n) {
				r.Lost = append(r.Lost, object+"/"+key)
			}
		}
	}
	return r
}
