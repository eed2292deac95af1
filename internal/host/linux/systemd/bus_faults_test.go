// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"github.com/slipway-k8s/slipway/internal/host"
)

// asks has every question and order to systemd.
var asks = map[string]func(ctx context.Context, h host.Host) error{
	"unit":    func(ctx context.Context, h host.Host) error { _, err := h.Unit(ctx, "kubelet"); return err },
	"reload":  func(ctx context.Context, h host.Host) error { return h.ReloadUnits(ctx) },
	"enable":  func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.EnableUnit, "kubelet") },
	"disable": func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.DisableUnit, "kubelet") },
	"mask":    func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.MaskUnit, "kubelet") },
	"unmask":  func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.UnmaskUnit, "kubelet") },
	"start":   func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.StartUnit, "kubelet") },
	"stop":    func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.StopUnit, "kubelet") },
	"restart": func(ctx context.Context, h host.Host) error { return h.OrderUnit(ctx, host.RestartUnit, "kubelet") },
}

// A systemd that accepts calls but doesn't answer delays the caller no longer than its deadline.
func TestSilentSystemd(t *testing.T) {
	release := make(chan struct{})
	f := &silentSystemd{release: release}
	startBus(t)
	conn, err := godbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(release); conn.Close() })
	if err := conn.ExportSubtree(f, "/org/freedesktop/systemd1", manager); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName("org.freedesktop.systemd1", godbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	for name, ask := range asks {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		started := time.Now()
		err := ask(ctx, newBus(t))
		cancel()
		if took := time.Since(started); err == nil || took > time.Minute {
			t.Errorf("%s: error %v after %s", name, err, took)
		}
	}
}

type silentSystemd struct{ release chan struct{} }

func (f *silentSystemd) wait() *godbus.Error { <-f.release; return nil }

func (f *silentSystemd) Reload() *godbus.Error { return f.wait() }

func (f *silentSystemd) EnableUnitFiles([]string, bool, bool) (bool, []linkChange, *godbus.Error) {
	return false, nil, f.wait()
}

func (f *silentSystemd) StartUnit(string, string) (godbus.ObjectPath, *godbus.Error) {
	return "/", f.wait()
}

func (f *silentSystemd) StopUnit(string, string) (godbus.ObjectPath, *godbus.Error) {
	return "/", f.wait()
}

func (f *silentSystemd) RestartUnit(string, string) (godbus.ObjectPath, *godbus.Error) {
	return "/", f.wait()
}

// Another program listening on the bus's socket isn't taken for systemd.
func TestNoBusButSomething(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			conn.Close()
		}
	}()
	t.Setenv(busEnv, "unix:path="+path)
	for name, ask := range asks {
		if err := ask(t.Context(), newBus(t)); !noBus(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
