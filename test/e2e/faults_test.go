// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// latest bounds the time until a wait ends with a named cause, even on a busy machine. init's limits are longer, so it has named the
// cause before they end.
const (
	latest       = 10 * time.Minute
	longTimeouts = "\ntimeouts: {kubeletHealthCheck: 30m, controlPlaneComponentHealthCheck: 30m, tlsBootstrap: 30m}"
)

// nodeFault is a fault on a real node.
type nodeFault struct {
	name string
	// cause is the name that slipway must report, message a part of its output.
	cause, message string
	// inject and repair are shell commands on the node.
	inject, repair string
	// init and cluster are inner lines of the configuration; kubelet replaces the lab's settings in the KubeletConfiguration.
	init, cluster, kubelet string
	env                    []string
	// before are phases to run before injecting the fault.
	before []string
	// skip is a phase to skip, besides preflight.
	skip string
}

const (
	withoutPreflight = "--skip-phases=preflight"
	// certificatesThere keeps init from checking inject's changes.
	certificatesThere = "--skip-phases=preflight,certs,kubeconfig"
)

// patched changes the API server's command with a JSON patch, which no check reads.
func patched(operations string) string {
	return `mkdir -p /root/patches; echo '[` + operations + `]' >/root/patches/kube-apiserver0+json.json`
}

func nodeFaults() []nodeFault {
	certificates := []string{"certs all", "kubeconfig all"}
	return []nodeFault{
		{
			name: "swap is on", cause: "swap", message: "/dev/lab-swap",
			inject: `printf 'Filename\tType\tSize\tUsed\tPriority\n/dev/lab-swap partition 1048572 0 -2\n' >/root/swaps; mount --bind /root/swaps /proc/swaps`,
			repair: "umount /proc/swaps", kubelet: "cgroupDriver: cgroupfs\nfailCgroupV1: false\n",
		},
		{name: "cgroup version 1", cause: "cgroup-version", message: "refuses to run", kubelet: "cgroupDriver: cgroupfs\nfailSwapOn: false\n"},
		{
			name: "runtime stopped", cause: "runtime-down", message: "containerd.sock",
			inject: "systemctl stop containerd", repair: "systemctl start containerd",
		},
		{name: "kubelet's flag is unknown", cause: "bad-flag", message: "unknown flag: --nonsense", init: "  kubeletExtraArgs: [{name: nonsense, value: '1'}]"},
		{
			name: "kubelet's unit is masked", cause: "kubelet-unit", message: "masked",
			inject: "systemctl stop kubelet; systemctl mask kubelet", repair: "systemctl unmask kubelet",
		},
		{
			name: "kubelet's unit is missing", cause: "kubelet-unit", message: "kubelet.service",
			inject: "systemctl stop kubelet; mkdir -p /root/unit; mv /usr/lib/systemd/system/kubelet.service* /root/unit/; mv /etc/systemd/system/kubelet.service* /root/unit/; systemctl daemon-reload",
			repair: "mv /root/unit/* /usr/lib/systemd/system/; systemctl daemon-reload",
		},
		{
			name: "kubelet keeps crashing", cause: "kubelet-crash", message: "crashing",
			inject: "mkdir -p /run/systemd/system/kubelet.service.d; printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' >/run/systemd/system/kubelet.service.d/99-broken.conf; systemctl daemon-reload",
			repair: "rm -r /run/systemd/system/kubelet.service.d; systemctl daemon-reload",
		},
		{name: "image cannot be pulled", cause: "image", message: "image registry.invalid/lab/", cluster: "imageRepository: registry.invalid/lab"},
		{name: "API server's flag is unknown", cause: "bad-flag", message: "unknown flag: --nonsense", cluster: "apiServer: {extraArgs: [{name: nonsense, value: '1'}]}"},
		{
			name: "port 10259 is taken", cause: "port-taken", message: "socat",
			inject: "systemd-run --unit=squatter socat TCP-LISTEN:10259,bind=127.0.0.1,fork PIPE", repair: "systemctl stop squatter",
		},
		{name: "address of another host", cause: "address-missing", message: "192.168.99.77", init: "localAPIEndpoint: {advertiseAddress: 192.168.99.77}"},
		{
			name: "etcd's certificate is of another CA", cause: "ca-mismatch", message: "etcd", before: certificates,
			inject: "slipway init phase certs all --cert-dir=/root/pki; cp /root/pki/etcd/server.* /etc/kubernetes/pki/etcd/", repair: "rm -r /root/pki",
		},
		{
			name: "key of another certificate", cause: "certificate", message: "/etc/kubernetes/pki/etcd/server.key", before: certificates,
			inject: "cp /etc/kubernetes/pki/etcd/peer.key /etc/kubernetes/pki/etcd/server.key",
		},
		{
			name: "certificates have expired", cause: "certificate", message: "expired", before: certificates,
			cluster: "certificateValidityPeriod: 1s", inject: "sleep 1.5",
		},
		{
			name: "etcd's data is damaged", cause: "etcd-data", message: "/var/lib/etcd",
			inject: "mkdir -p /var/lib/etcd/member/snap /var/lib/etcd/member/wal; head -c 65536 /dev/urandom >/var/lib/etcd/member/snap/db",
		},
		{
			name: "etcd's disk is full", cause: "disk-full", message: "/var/lib/etcd",
			inject: "mount -t tmpfs -o size=8m,mode=0700 lab-full /var/lib/etcd", repair: "umount -l /var/lib/etcd",
		},
		{
			name: "etcd is not a member", cause: "etcd-member", message: "not a member",
			cluster: "etcd: {local: {extraArgs: [{name: initial-cluster, value: 'other=https://192.168.99.99:2380'}]}}",
		},
		{
			name: "name of external etcd is unknown", cause: "name-unknown", message: "etcd.lab.invalid", before: certificates,
			inject:  "cp /etc/kubernetes/pki/ca.crt /root/ca.crt",
			cluster: "etcd: {external: {endpoints: ['https://etcd.lab.invalid:2379'], caFile: /etc/kubernetes/pki/ca.crt, certFile: /etc/kubernetes/pki/apiserver-kubelet-client.crt, keyFile: /etc/kubernetes/pki/apiserver-kubelet-client.key}}",
		},
		{
			// Health endpoints don't show it. An external etcd that doesn't exist keeps init waiting; on this host, so that it's no
			// cause itself. And without the API server's head start, the controllers start at once; their logs show the proxy.
			name: "a proxy in the way", cause: "proxy", message: "NO_PROXY",
			env:     []string{"HTTPS_PROXY=http://lab:secret@192.168.99.1:3128"},
			skip:    "wait-control-plane/api-server",
			cluster: "etcd: {external: {endpoints: ['https://127.0.0.1:2379'], caFile: /etc/kubernetes/pki/ca.crt, certFile: /etc/kubernetes/pki/apiserver-kubelet-client.crt, keyFile: /etc/kubernetes/pki/apiserver-kubelet-client.key}}",
		},
		{
			name: "nodes have no rights", cause: "forbidden", message: "--authorization-mode=RBAC",
			inject: patched(`{"op": "test", "path": "/spec/containers/0/command/3", "value": "--authorization-mode=Node,RBAC"}, ` +
				`{"op": "replace", "path": "/spec/containers/0/command/3", "value": "--authorization-mode=RBAC"}`),
			repair: "rm -r /root/patches", init: "patches: {directory: /root/patches}",
		},
		{
			name: "nobody is anonymous", cause: "unauthorized", message: "--anonymous-auth=false",
			inject: patched(`{"op": "add", "path": "/spec/containers/0/command/-", "value": "--anonymous-auth=false"}`),
			repair: "rm -r /root/patches", init: "patches: {directory: /root/patches}",
		},
		{
			name: "a volume that is not there", cause: "static-pod", message: "kube-scheduler",
			cluster: "scheduler: {extraVolumes: [{name: none, hostPath: /no/such/file, mountPath: /x, pathType: File}]}",
		},
	}
}

// TestFaults breaks two nodes in many ways, one after another, and runs init into each fault: init must name the cause soon after
// it starts to wait. Then one node becomes a control plane on a busy machine, which mustn't be reported as a fault. The other
// node joins it at the second attempt.
func TestFaults(t *testing.T) {
	m := boot(t)
	other := m.another("cp-2")
	table := &faultTable{causes: map[string]bool{}}
	faults := nodeFaults()
	queue := make(chan nodeFault, len(faults))
	for _, i := range tier.Sample(t, 6, len(faults)) {
		queue <- faults[i]
	}
	close(queue)
	t.Run("side by side", func(t *testing.T) {
		for _, node := range []*nodes.Node{m.node, other.node} {
			t.Run(node.Name(), func(t *testing.T) {
				t.Parallel()
				for f := range queue {
					took, out, err := machine{t, node}.runInto(f)
					table.add(t, f, took, out, err)
				}
			})
		}
	})
	join := m.slowStart()
	other.cannotJoin(m, join, table)
	other.diagnosedHealthy()
	m.bundleHoldsNoSecret(join)
	m.diagnosedHealthy()
	t.Logf("%d faults, of %d causes\nfault | named as | seconds\n%s", table.rows, len(table.causes), table.text.String())
}

// slowStart creates a control plane while other programs keep the machine busy, and returns the arguments for a join.
func (m machine) slowStart() []string {
	m.Helper()
	const busy, busyPrograms = "busy-%d", 3
	for i := range busyPrograms {
		m.must("systemd-run", "--unit="+fmt.Sprintf(busy, i), "sh", "-c", "while :; do :; done")
	}
	command := strings.Fields(strings.ReplaceAll(m.init(document("", podSubnet)), "\\\n", " "))
	for i := range busyPrograms {
		m.must("systemctl", "stop", fmt.Sprintf(busy, i))
	}
	return append(command[2:], "--ignore-preflight-errors="+nodes.IgnorePreflightErrors)
}

// diagnosedHealthy checks that diagnose finds nothing on a working node. Repaired faults may still be in its logs for a while.
func (m machine) diagnosedHealthy() {
	m.Helper()
	m.eventually("nothing to be found on "+m.node.Name(), readyLimit, func() error {
		out, err := m.try("slipway", "diagnose")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// bundleHoldsNoSecret searches a control plane's support bundle for its keys and for the join token.
func (m machine) bundleHoldsNoSecret(join []string) {
	m.Helper()
	m.must("slipway", "support-bundle", "--file=/root/bundle.tar.gz")
	text := m.must("tar", "-xzOf", "/root/bundle.tar.gz")
	_, token, _ := strings.Cut(join[slices.Index(join, "--token")+1], ".")
	secrets := map[string]string{"the token": token}
	for _, path := range strings.Fields(m.must("find", "/etc/kubernetes", "/var/lib/kubelet/pki", "-name", "*.key", "-o", "-name", "*.pem", "-o", "-name", "*.conf")) {
		data := m.must("cat", path)
		if at := strings.Index(data, "PRIVATE KEY-----\n"); at >= 0 {
			secrets[path] = data[at+40 : at+80]
		}
		if _, key, found := strings.Cut(data, "client-key-data: "); found {
			secrets[path] = key[100:140]
		}
	}
	for place, secret := range secrets {
		if strings.Contains(text, secret) {
			m.Errorf("the bundle holds the secret of %s", place)
		}
	}
	if len(secrets) < 12 || !strings.Contains(text, "kube-apiserver") {
		m.Errorf("searched for %d secrets in %d bytes", len(secrets), len(text))
	}
	m.Logf("support bundle: %d bytes of text, %d secrets looked for", len(text), len(secrets))
}

// faultTable is the test's table of results.
type faultTable struct {
	mu     sync.Mutex
	text   strings.Builder
	rows   int
	causes map[string]bool
}

func (f *faultTable) add(t *testing.T, fault nodeFault, took time.Duration, out string, err error) {
	t.Helper()
	named := "-"
	if _, rest, found := strings.Cut(out, "\n  ["); found {
		named, _, _ = strings.Cut(rest, "]")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows++
	f.causes[named] = true
	row := fmt.Sprintf("%-36s | %-16s | %5.1f\n", fault.name, named, took.Seconds())
	f.text.WriteString(row)
	t.Log(row)
	if err == nil || named != fault.cause || !strings.Contains(out, fault.message) || took > latest {
		t.Errorf("%s: named %q after %.1fs, want %q with %q within %s; it ended with %v and said\n%s",
			fault.name, named, took.Seconds(), fault.cause, fault.message, latest, err, out)
	}
	if strings.Contains(out, "lab:secret") {
		t.Errorf("%s: the output shows a password:\n%s", fault.name, out)
	}
}

// cannotJoin joins a cluster that must ask a nonexistent webhook about every certificate request; then it joins without that
// webhook.
func (m machine) cannotJoin(cluster machine, args []string, table *faultTable) {
	m.Helper()
	cluster.write("/root/webhook.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.lab.example
  clientConfig: {service: {name: none, namespace: default}}
  rules: [{apiGroups: [certificates.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [certificatesigningrequests]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`)
	cluster.kubectl("apply", "-f", "/root/webhook.yaml")
	clock := &waitClock{}
	err := m.node.Exec(m.Context(), nodes.Cmd{Args: append([]string{"slipway", "join"}, args...), Stdout: io.Discard, Stderr: clock})
	table.add(m.T, nodeFault{name: "webhook that does not answer", cause: "webhook", message: "guard.lab.example"}, time.Since(clock.at), clock.String(), err)
	cluster.kubectl("delete", "-f", "/root/webhook.yaml")
	m.must(append([]string{"slipway", "join"}, args...)...)
}

// runInto injects a fault, runs init, and undoes both. It returns the time from the start of the last wait to the end.
func (m machine) runInto(f nodeFault) (time.Duration, string, error) {
	m.Helper()
	config := document(f.init+longTimeouts, podSubnet+"\n"+f.cluster)
	if f.kubelet != "" {
		config = strings.Replace(config, "cgroupDriver: cgroupfs\nfailCgroupV1: false\nfailSwapOn: false\n", f.kubelet, 1)
	}
	m.write("/root/slipway.yaml", config)
	skip := strings.TrimSuffix(withoutPreflight+","+f.skip, ",")
	for _, phase := range f.before {
		skip = certificatesThere
		m.must(append(strings.Fields("slipway init phase "+phase), "--config=/root/slipway.yaml")...)
	}
	if f.inject != "" {
		m.must("sh", "-c", f.inject)
	}
	began := &waitClock{}
	ctx, cancel := context.WithTimeout(m.Context(), latest)
	defer cancel()
	err := m.node.Exec(ctx, nodes.Cmd{Args: []string{"slipway", "init", "--config=/root/slipway.yaml", skip}, Env: f.env, Stdout: io.Discard, Stderr: began})
	took := time.Since(began.at)
	if f.repair != "" {
		m.must("sh", "-c", f.repair)
	}
	m.must("sh", "-c", "slipway reset --force >/root/reset.log 2>&1 || { cat /root/reset.log; exit 1; }; rm -rf /root/pki")
	return took, began.String(), err
}

// waitClock keeps its input, and the time of the last line that reported a start or a wait.
type waitClock struct {
	mu   sync.Mutex
	text bytes.Buffer
	at   time.Time
}

func (w *waitClock) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(p, []byte("Waiting for")) || bytes.Contains(p, []byte("the kubelet\n")) {
		w.at = time.Now()
	}
	return w.text.Write(p)
}

func (w *waitClock) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// diskErrors are the disk's errors, in turn.
var diskErrors = []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS}

// TestDiskFailsAtEveryFileOperation makes each of Slipway's system calls that change or sync a file fail once. The run must
// report it and leave no partial file, and the same command must finish when run again.
func TestDiskFailsAtEveryFileOperation(t *testing.T) {
	beside(t)
	if !kill.CanFail {
		t.Skip("calls cannot be made to fail on this kind of machine")
	}
	v := victim{T: t, program: filesProgram(t), dir: t.TempDir()}
	for i, args := range filePhases {
		before, after := v.around(i)
		whole := v.run(after, args, 0, syscall.EIO) // counts fsync as well
		if !whole.Status.Exited() || whole.Status.ExitStatus() != 0 {
			t.Fatalf("%s: %v", args, whole.Status)
		}
		var group errgroup.Group
		group.SetLimit(4)
		for _, i := range tier.Sample(t, 4, whole.Changes) {
			group.Go(func() error { v.failedAt(before, after, args, i+1); return nil })
		}
		_ = group.Wait()
		t.Logf("%s makes %d calls", args[0], whole.Changes)
	}
}

func (v victim) failedAt(before, after string, args []string, at int) {
	root := filepath.Join(v.dir, fmt.Sprintf("%s-%d", args[0], at))
	v.copy(before, root)
	defer os.RemoveAll(root)
	var said bytes.Buffer
	v.said = &said
	errno := diskErrors[at%len(diskErrors)]
	failed := v.run(root, args, at, errno)
	if failed.Changes < at {
		return // this run took fewer steps
	}
	where := fmt.Sprintf("%s, call %d fails with %q", args, at, errno)
	if failed.Status.ExitStatus() != 1 || !strings.Contains(said.String(), errno.Error()) || strings.Contains(said.String(), "goroutine ") {
		v.Errorf("%s: %v\n%s", where, failed.Status, said.String())
	}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".slipway-") {
			v.Errorf("%s: %s is left", where, path)
		}
		return nil
	})
	out, err := v.again(root, args)
	if err == nil {
		err = intact.Check(root)
	}
	if err == nil {
		err = same(after, root)
	}
	if err != nil {
		v.Errorf("%s, the same command again: %v\n%s", where, err, out)
	}
}
