// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

func TestPortFree(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		err = stack.PortFree("", port)
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("error %v", err)
		}
		fact.Error(t, err, fmt.Sprintf("port %d", port), programName(os.Getpid()), fmt.Sprintf("pid %d", os.Getpid()))
		l.Close()
		if err := stack.PortFree("", port); err != nil {
			t.Error(err)
		}
	}
	if err := stack.PortFree("", 70000); err == nil {
		t.Error("port 70000 is free")
	}
}

// A port is free on one address while another program has it on another.
func TestPortFreeOnOneAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if err := stack.PortFree("127.0.0.2", port); err != nil {
		t.Error(err)
	}
	if err := stack.PortFree("127.0.0.1", port); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("error %v", err)
	}
}

func TestPortHolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := host.Process{PID: os.Getpid(), Name: filepath.Base(exe)}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("not tried on %s: %v", address, err) // a host may lack IPv6
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if p, found := stack.PortHolder(port); !found || p != want {
			t.Errorf("%s: %+v, %v, want %+v", address, p, found, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if p, found := stack.PortHolder(port); found {
			t.Errorf("%s: still held by %+v after it was closed", address, p)
		}
	}
}
