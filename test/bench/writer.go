// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pkg/errors"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	// writerVariable holds a writing as JSON, for a copy of this program that runs on a node.
	writerVariable = "SLIPWAY_BENCH_WRITING"

	localEtcd = "https://localhost:2379"
	etcdPKI   = "/etc/kubernetes/pki/etcd/"

	// writers write at the same time, each with a pause after each write.
	writers    = 4
	writePause = 10 * time.Millisecond
)

// writing is an order to write to the etcd of this host.
type writing struct {
	Fill    int           // values of 1 MiB to write, with no command
	Quiet   time.Duration // how long to write before the command
	Command []string      // the command to run while writing
}

// written is the result of a writing.
type written struct {
	Before, Meanwhile []time.Duration // how long each write took before the command, and while it ran
	Took              time.Duration   // by the command
	Memory            float64         // the command's peak, in MiB
}

// playWriter carries out the environment's order, prints the result, and ends the program. Without an order, it returns.
func playWriter(ctx context.Context) {
	text := os.Getenv(writerVariable)
	if text == "" {
		return
	}
	var w writing
	err := json.Unmarshal([]byte(text), &w)
	var result written
	if err == nil {
		result, err = w.play(ctx)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (w writing) play(ctx context.Context) (written, error) {
	files := transport.TLSInfo{CertFile: etcdPKI + "peer.crt", KeyFile: etcdPKI + "peer.key", TrustedCAFile: etcdPKI + "ca.crt"}
	tls, err := files.ClientConfig()
	if err != nil {
		return written{}, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{localEtcd}, TLS: tls, DialTimeout: readyLimit})
	if err != nil {
		return written{}, err
	}
	defer client.Close()
	if w.Fill > 0 {
		return written{}, fill(ctx, client, w.Fill)
	}
	return w.writeBeside(ctx, client)
}

func fill(ctx context.Context, client *clientv3.Client, count int) error {
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error {
			_, err := client.Put(ctx, fmt.Sprintf("/bench/filler/%d", i), value)
			return err
		})
	}
	return group.Wait()
}

// writeBeside writes while nothing else happens, and then while the command runs.
func (w writing) writeBeside(ctx context.Context, client *clientv3.Client) (written, error) {
	var result written
	var err error
	if result.Before, err = write(ctx, client, func() error { return pause(ctx, w.Quiet) }); err != nil {
		return result, err
	}
	result.Meanwhile, err = write(ctx, client, func() error {
		started := time.Now()
		var err error
		result.Memory, err = peakMemory(w.Command[0], w.Command[1:]...)
		result.Took = time.Since(started)
		return err
	})
	return result, err
}

// write writes until the function returns, and returns how long each write took.
func write(ctx context.Context, client *clientv3.Client, while func() error) ([]time.Duration, error) {
	ended := make(chan struct{})
	var mu sync.Mutex
	var took []time.Duration
	group, ctx := errgroup.WithContext(ctx)
	for i := range writers {
		group.Go(func() error {
			for {
				select {
				case <-ended:
					return nil
				case <-time.After(writePause):
				}
				started := time.Now()
				if _, err := client.Put(ctx, fmt.Sprintf("/bench/writer/%d", i), started.String()); err != nil {
					return errors.Wrap(err, "write")
				}
				mu.Lock()
				took = append(took, time.Since(started))
				mu.Unlock()
			}
		})
	}
	err := while()
	close(ended)
	if writing := group.Wait(); err == nil {
		err = writing
	}
	return took, err
}
