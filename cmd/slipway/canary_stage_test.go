// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

const (
	stageEnv    = "SLIPWAY_CANARY_STAGE"
	stageNode   = "192.0.2.11"
	stageServer = stageNode + ":6443"
	inputs      = "/tmp/in"
	children    = "/tmp/children"
)

// onStage runs the test again in its own namespaces, where the program may do as it likes: its directories are in memory,
// everything else is read only, and no network, bus or process of this machine can be reached. It returns the output.
func onStage(t *testing.T, number int) string {
	return string(reexec(t, []string{
		fmt.Sprintf("%s=%d", stageEnv, number), "PATH=/tmp/bin", "HOME=/root",
		"HTTPS_PROXY=http://user:#" + proxyPassword + "@127.0.0.1:1", "HTTP_PROXY=user:" + barePassword + "@127.0.0.1:1", "NO_PROXY=192.0.2.0/24",
	}, unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS))
}

// reexec runs the test in its own process, with an environment and new namespaces. It removes leftovers in its directory for
// temporary files.
func reexec(t *testing.T, environ []string, namespaces uintptr) []byte {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env, cmd.SysProcAttr = append(environ, "TMPDIR="+t.TempDir()), &unix.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", environ[0], err, out)
	}
	return out
}

// ownDirectories puts directories in memory over the program's, and makes the rest read only. That includes the directory for
// temporary files, which is /tmp from here on.
func ownDirectories(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, dir := range []string{"/etc", "/var", "/run", "/root", "/tmp"} {
		must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"))
	}
	must(t, unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	t.Setenv("TMPDIR", "/tmp")
}

// stage is a host with a control plane's files, and an API.
type stage struct {
	api     *fakeapi.Server
	objects map[string]map[string]any
	files   map[string][]byte // the control plane's, by path
	given   []canary          // all secrets present before a run
}

// ownNetwork gives a new network namespace the node's address. Nothing leaves it.
func ownNetwork(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	addr, err := netlink.ParseAddr(stageNode + "/32")
	must(t, err)
	must(t, netlink.AddrAdd(lo, addr))
	// The default route determines the address to advertise.
	must(t, netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
	}))
}

func newStage(t *testing.T) *stage {
	t.Helper()
	ownDirectories(t)
	must(t, unix.Sethostname([]byte("cp-1")))
	ownNetwork(t)
	for _, program := range []string{"kubelet", "journalctl", "iptables-legacy-save", "iptables-legacy-restore", "ip6tables-legacy-save", "ip6tables-legacy-restore", "iptables-save", "iptables-restore", "systemctl", "sh", "crictl"} {
		put(t, "/tmp/bin/"+program, "#!/bin/sh\n{ echo \"$0\" \"$@\"; /usr/bin/env; } >>"+children+"\necho Kubernetes v1.37.2\n", 0o755)
	}
	putInputs(t)
	s := &stage{given: fixedCanaries()}
	s.build(t)
	return s
}

// build makes the files and the API's objects with the program itself.
func (s *stage) build(t *testing.T) {
	t.Helper()
	for _, phase := range []string{"certs all", "kubeconfig all"} {
		s.mustRun(t, append(strings.Fields("init phase "+phase), "--config", inputs+"/setup.yaml"))
	}
	pair, err := tls.LoadX509KeyPair("/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/apiserver.key")
	must(t, err)
	s.api = fakeapi.New(&tls.Config{Certificates: []tls.Certificate{pair}})
	t.Cleanup(s.api.Close)
	forward(t, stageServer, s.api.Listener.Addr().String())
	s.api.Put("/api/v1/nodes/cp-1", &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}})
	ca, err := os.ReadFile("/etc/kubernetes/pki/ca.crt")
	must(t, err)
	s.api.Put("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": string(ca)},
	})
	for _, phase := range []string{"upload-config all", "upload-certs --upload-certs", "bootstrap-token", "mark-control-plane", "addon all"} {
		s.mustRun(t, append(strings.Fields("init phase "+phase), "--config", inputs+"/setup.yaml"))
	}
	s.objects = s.api.Objects()
	s.files = snapshot(t)
	for path, data := range s.files {
		s.given = append(s.given, keyCanaries(path, data)...)
		s.given = append(s.given, userCanaries(path, data)...)
	}
}

// reset restores the host's state before any run; a fresh host has no files.
func (s *stage) reset(t *testing.T, fresh bool) {
	t.Helper()
	s.api.Spoil = nil
	for path, obj := range s.objects {
		s.api.Put(path, obj)
	}
	for _, dir := range []string{"/etc", "/var", "/run", "/root", "/tmp"} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if path := filepath.Join(dir, e.Name()); path != "/tmp/bin" {
				must(t, os.RemoveAll(path))
			}
		}
	}
	must(t, os.MkdirAll("/tmp/out", 0o700))
	putInputs(t)
	if fresh {
		return
	}
	for path, data := range s.files {
		mode := fs.FileMode(0o600)
		if strings.HasSuffix(path, ".crt") {
			mode = 0o644
		}
		put(t, path, string(data), mode)
	}
}

type outcome struct {
	stdout, stderr []byte
}

// run runs a command line in this process, so that thousands of runs take seconds.
func (s *stage) run(t *testing.T, args []string, limit time.Duration) outcome {
	t.Helper()
	files := [2]*os.File{capture(t), capture(t)}
	before := [2]*os.File{os.Stdout, os.Stderr}
	os.Stdout, os.Stderr = files[0], files[1] // klog writes there regardless of its settings
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%q: panic: %v", args, p)
			}
		}()
		_ = execute(ctx, "slipway", cli.Streams{In: strings.NewReader("y\n"), Out: files[0], Err: files[1]}, args)
	}()
	cancel()
	klog.Flush()
	os.Stdout, os.Stderr = before[0], before[1]
	return outcome{stdout: content(t, files[0]), stderr: content(t, files[1])}
}

func (s *stage) mustRun(t *testing.T, args []string) {
	t.Helper()
	if o := s.run(t, args, 10*time.Second); len(o.stderr) > 0 && strings.Contains(string(o.stderr), "slipway: ") {
		t.Fatalf("%q: %s", args, o.stderr)
	}
}

func capture(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	must(t, err)
	return os.NewFile(uintptr(fd), "output")
}

func content(t *testing.T, f *os.File) []byte {
	t.Helper()
	defer f.Close()
	_, err := f.Seek(0, io.SeekStart)
	must(t, err)
	data, err := io.ReadAll(f)
	must(t, err)
	return data
}

// snapshot reads the files runs leave, but not their inputs.
func snapshot(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, dir := range []string{"/etc", "/var", "/run", "/root", "/tmp"} {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, inputs) || strings.HasPrefix(path, "/tmp/bin/") {
				return err
			}
			files[path], err = os.ReadFile(path)
			return err
		}))
	}
	return files
}

// forward passes connections to an address on to another server.
func forward(t *testing.T, address, to string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				out, err := net.Dial("tcp", to)
				if err != nil {
					_ = in.Close()
					return
				}
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				_, _ = io.Copy(in, out)
				_ = in.Close()
			}()
		}
	}()
}

func put(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("the stage: %v", err)
	}
}
