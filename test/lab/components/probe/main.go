// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Program probe is what the tests run in a Pod:
//
//	probe serve [ADDRESS]   answer HTTP with the host's name (default :8080)
//	probe get URL           print what URL answers
//	probe lookup NAME       print NAME's addresses, one a line
//	probe write URL         patch the object at URL of the API 10 times a second, with the Pod's service account,
//	                        until ended; print each write that fails, and every second how many there were
//	probe sleep             wait to be ended
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// limit is how long one question may take.
const limit = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) >= 1 && args[0] == "serve":
		return serve(ctx, append(args[1:], ":8080")[0])
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1], out)
	case len(args) == 2 && args[0] == "lookup":
		return lookup(ctx, args[1], out)
	case len(args) == 2 && args[0] == "write":
		return write(ctx, args[1], out)
	case len(args) == 1 && args[0] == "sleep":
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("usage: probe serve [ADDRESS] | get URL | lookup NAME | write URL | sleep")
}

func serve(ctx context.Context, address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: limit, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// patience is for an emulated machine, in which a question to DNS may take longer than its usual 5 s.
const patience = time.Minute

// get asks again until somebody answers.
func get(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		answer, err := ask(ctx, url)
		if err == nil {
			_, err = out.Write(answer)
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func ask(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", url, response.Status)
	}
	return answer, err
}

func lookup(ctx context.Context, name string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	for _, address := range addresses {
		fmt.Fprintln(out, address)
	}
	return err
}
