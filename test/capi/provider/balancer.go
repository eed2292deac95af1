// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
)

const (
	checkEvery = time.Second
	checkLimit = 10 * time.Second // a busy API server may be late
	// failuresToEnd is how many checks in a row must fail: /readyz gives etcd just two seconds.
	failuresToEnd = 3
)

// Dial opens a connection to a control plane.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// TCPBalancer is a Balancer like those in front of real control planes: it asks each API server whether it's ready, gives new
// connections to ready ones, in turn, and ends the connections to an address that stops being ready, after several checks.
type TCPBalancer struct {
	port   string
	dial   Dial
	client *http.Client

	checking sync.Mutex // so that no check's result is older than that of another
	mu       sync.Mutex
	backends map[string]*backend // by address
	last     string              // the address that got the last connection
}

type backend struct {
	ready    bool
	failures int // of the last checks, in a row
	conns    map[net.Conn]bool
}

// NewBalancer returns a balancer in front of API servers with the same port.
func NewBalancer(port string, dial Dial) *TCPBalancer {
	return &TCPBalancer{port: port, dial: dial, backends: map[string]*backend{}, client: &http.Client{
		Timeout: checkLimit,
		// Like any balancer for TCP, it doesn't know the cluster's CA, and sends no secret.
		Transport: &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
}

// Set replaces the addresses of the control planes. A new one gets no connection until Check has found it ready.
func (b *TCPBalancer) Set(addresses ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for address, gone := range b.backends {
		if !slices.Contains(addresses, address) {
			gone.end()
			delete(b.backends, address)
		}
	}
	for _, address := range addresses {
		if b.backends[address] == nil {
			b.backends[address] = &backend{conns: map[net.Conn]bool{}}
		}
	}
}

// end closes the connections to a backend; b.mu is held.
func (x *backend) end() {
	x.ready = false
	for conn := range x.conns {
		_ = conn.Close() // the copies on both sides end with it
	}
}

// Check asks all API servers whether they're ready.
func (b *TCPBalancer) Check(ctx context.Context) {
	b.checking.Lock()
	defer b.checking.Unlock()
	b.mu.Lock()
	addresses := slices.Collect(maps.Keys(b.backends))
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, address := range addresses {
		all.Go(func() { b.set(address, b.answers(ctx, address)) })
	}
	all.Wait()
}

func (b *TCPBalancer) set(address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.backends[address]
	if x == nil {
		return
	}
	if ready {
		x.ready, x.failures = true, 0
		return
	}
	if x.failures++; x.failures >= failuresToEnd {
		x.end()
	}
}

func (b *TCPBalancer) answers(ctx context.Context, address string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(address, b.port)+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := b.client.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection serves the next check
	return res.StatusCode == http.StatusOK
}

// Serve accepts connections until the context ends, and checks the API servers meanwhile.
func (b *TCPBalancer) Serve(ctx context.Context, listener net.Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
		b.Set()
	})
	running.Go(func() { b.checkAlways(ctx) })
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Wrap(err, "the balancer cannot accept connections")
		}
		running.Go(func() { b.forward(ctx, conn) })
	}
}

func (b *TCPBalancer) checkAlways(ctx context.Context) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		b.Check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// next returns the ready address after the last connection's, or "".
func (b *TCPBalancer) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for _, address := range slices.Sorted(maps.Keys(b.backends)) {
		if b.backends[address].ready {
			ready = append(ready, address)
		}
	}
	if len(ready) == 0 {
		return ""
	}
	at := slices.IndexFunc(ready, func(address string) bool { return address > b.last })
	b.last = ready[max(at, 0)]
	return b.last
}

// forward connects a client with a control plane. Without one that's ready, the client's connection ends at once.
func (b *TCPBalancer) forward(ctx context.Context, from net.Conn) {
	defer from.Close()
	address := b.next()
	if address == "" {
		return
	}
	dialing, cancel := context.WithTimeout(ctx, checkLimit)
	to, err := b.dial(dialing, "tcp", net.JoinHostPort(address, b.port))
	cancel()
	if err != nil {
		return
	}
	defer to.Close()
	if !b.track(address, to, true) {
		return
	}
	defer b.track(address, to, false)
	var copies sync.WaitGroup
	copies.Go(func() { copyHalf(to, from) })
	copyHalf(from, to)
	copies.Wait()
}

// track keeps a connection to a backend that's still ready, and reports whether it does, or forgets the connection.
func (b *TCPBalancer) track(address string, conn net.Conn, keep bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.backends[address]
	if x == nil {
		return false
	}
	if !keep || !x.ready {
		delete(x.conns, conn)
		return false
	}
	x.conns[conn] = true
	return true
}

// copyHalf copies one direction until its source ends or fails, and then ends the other side's.
func copyHalf(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_, _ = to.Close(), from.Close()
}
