// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// remains is a former node, or a host that was about to become one, and the flags to reset it with.
type remains struct {
	flags config.ResetFlags
	files map[string]string // by path; directories end in a slash
	links map[string]string
	// mounts are separate file systems; narrowed are directories that existed before with a wider mode.
	mounts, narrowed []string
	pods             []host.Pod
	// alone means that etcd has no other member, or doesn't have this member.
	alone bool
}

func (s *remains) lay(files map[string]string) {
	for path, text := range files {
		s.files[path] = text
	}
}

// generateRemains generates the same host for the same seed.
func generateRemains(seed uint64) *remains {
	r := rand.New(rand.NewPCG(seed, 9))
	some := func() bool { return r.IntN(2) == 0 }
	s := &remains{files: map[string]string{}, links: map[string]string{}}
	s.lay(usersOwn)
	delete(s.files, "/proc/self/mountinfo") // the host has a real one
	s.pki(some)
	switch r.IntN(5) {
	case 0: // an init or a join that was cut off early
	case 1:
		s.worker()
	case 2:
		s.controlPlane()
		s.files["/etc/kubernetes/manifests/kube-apiserver.yaml"] = "spec: {containers: [{command: [kube-apiserver, '--etcd-servers=https://192.0.2.5:2379', '--etcd-keyfile=/etc/etcd/client.key']}]}\n"
		s.files["/etc/etcd/client.key"] = "mine"
	default:
		s.controlPlane()
		s.etcd(some)
	}
	s.volumes(some)
	s.places(some, r)
	s.oddities(some)
	if some() {
		s.flags.Given, s.flags.Network = append(s.flags.Given, "network"), true
	}
	if some() {
		s.flags.Given, s.flags.CleanupTmpDir = append(s.flags.Given, "cleanup-tmp-dir"), true
		s.files["/etc/kubernetes/tmp/backup/etcd.yaml"] = ""
	}
	if r.IntN(6) == 0 {
		s.flags.Given, s.flags.SkipPhases = append(s.flags.Given, "skip-phases"), []string{"remove-etcd-member"}
	}
	return s
}

func (s *remains) pki(some func() bool) {
	dir := config.DefaultCertificatesDir
	if some() {
		dir = "/srv/tls"
		s.flags.Given, s.flags.CertDir = append(s.flags.Given, "cert-dir"), dir
		s.files[dir+"/mail.key"] = "mine"
	}
	for _, name := range []string{"/ca.crt", "/ca.key", "/etcd/ca.key", "/sa.pub", "/.ca.key.slipway-ABCDEFGH"} {
		s.files[dir+name] = ""
	}
	if some() {
		s.files[dir+"/etcd/old.crt"] = "mine"
	}
}

func (s *remains) worker() {
	s.lay(map[string]string{
		"/etc/kubernetes/kubelet.conf": "", "/var/lib/kubelet/config.yaml": "", phasetest.KubeletActive + "/": "",
		"/usr/libexec/kubernetes/kubelet-plugins/volume/exec/": "",
	})
	for i, name := range []string{"coredns-1", "kube-proxy-1", "web"} {
		s.pods = append(s.pods, host.Pod{ID: strings.Repeat(fmt.Sprint(i), 8), Namespace: "kube-system", Name: name, HostNetwork: name == "kube-proxy-1"})
	}
	s.lay(networkOwn)
	for _, p := range s.pods {
		if !p.HostNetwork {
			s.lay(map[string]string{
				"/var/lib/cni/results/pods-" + p.ID + "-eth0":       "{}",
				"/var/lib/cni/results/cni-loopback-" + p.ID + "-lo": "{}",
				"/var/lib/cni/networks/pods/10.244.0.1" + p.ID:      p.ID + "\r\neth0",
			})
		}
	}
}

func (s *remains) controlPlane() {
	s.worker()
	s.lay(map[string]string{
		"/etc/kubernetes/admin.conf": "", "/etc/kubernetes/super-admin.conf": "", "/etc/kubernetes/.admin.conf.slipway-ABCDEFGH": "",
		"/etc/kubernetes/manifests/kube-apiserver.yaml":                   "kind: Pod\n",
		"/etc/kubernetes/manifests/.kube-scheduler.yaml.slipway-ABCDEFGH": "",
	})
	for _, name := range []string{"kube-apiserver", "kube-scheduler"} {
		s.pods = append(s.pods, host.Pod{ID: name, Namespace: "kube-system", Name: name + "-cp-1", HostNetwork: true})
	}
}

func (s *remains) etcd(some func() bool) {
	dir, name := config.DefaultEtcdDataDir, "etcd.yaml"
	if some() {
		dir = "/srv/etcd"
	}
	if left := some(); left && some() {
		name = ".etcd.yaml" // its member left in an earlier run
	}
	s.files["/etc/kubernetes/manifests/"+name] = strings.ReplaceAll(etcdPod, "DIR", dir)
	s.files[dir+"/member/wal/0.wal"] = ""
	if s.alone = some(); !s.alone {
		s.files[fakeMember+"/"] = ""
	}
}

// volumes adds the kubelet's mounts, which are removed, and others', which stay.
func (s *remains) volumes(some func() bool) {
	if some() {
		s.files["/var/lib/kubelet/pods/a/volumes/empty/data"] = ""
		s.mounts = append(s.mounts, "/var/lib/kubelet/pods/a/volumes/token", "/var/lib/kubelet/pods/a/volumes/token/below", "/var/lib/kubelet/pods/a/volumes/token")
	}
	if some() {
		s.mounts = append(s.mounts, "/var/lib/kubelet/mine", "/var/lib/kubelet/mine/below")
	}
	if some() {
		s.files["/var/lib/kubelet/plugin-data/file"] = ""
		s.mounts = append(s.mounts, "/var/lib/kubelet/plugin-data/disk")
	}
}

// places chooses where directories really are, and their earlier state.
func (s *remains) places(some func() bool, r *rand.Rand) {
	switch r.IntN(5) {
	case 0:
		s.links["/var/lib/kubelet"] = "/disks/one/kubelet"
	case 1:
		s.links["/var/lib/kubelet"] = "/disk" // which may hold more
	case 2:
		s.mounts = append([]string{"/var/lib/kubelet"}, s.mounts...)
		s.files["/var/lib/kubelet/lost+found/"] = ""
	}
	if some() {
		s.mounts = append([]string{"/var/lib/etcd"}, s.mounts...)
		s.files["/var/lib/etcd/lost+found/"] = ""
	}
	for _, dir := range []string{"/etc/kubernetes/pki", "/etc/kubernetes/manifests", "/srv/tls"} {
		if some() {
			s.narrowed = append(s.narrowed, dir)
		}
	}
}

// oddities are things nobody should have put there.
func (s *remains) oddities(some func() bool) {
	if some() {
		s.files["/etc/kubernetes/scheduler.conf/file"] = "a directory"
	}
	if some() {
		s.links["/etc/kubernetes/controller-manager.conf"] = "/srv/tls/mail.key"
	}
	if some() {
		s.files["/etc/kubernetes/mine.conf"] = ""
	}
	if some() {
		s.files["/etc/group"] += "kubeadm-etcd:x:2379:\n"
		s.files["/etc/passwd"] += "kubeadm-etcd:x:2379:2379::/nonexistent:/bin/false\n"
	}
}

func (s *remains) build(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(lay("/", map[string]string{"/var/lib/": "", filepath.Dir(phasetest.KubeletActive) + "/": ""}))
	for from, to := range s.links {
		if strings.HasPrefix(from, "/var/lib/kubelet") {
			must(os.MkdirAll(to, 0o755))
		}
		must(os.MkdirAll(filepath.Dir(from), 0o755))
		must(os.Symlink(to, from))
	}
	for _, dir := range s.mounts {
		must(os.MkdirAll(dir, 0o755))
		must(unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	must(lay("/", s.files))
	for _, p := range s.pods {
		must(os.MkdirAll(filepath.Join(phasetest.FakePods, p.ID), 0o755))
	}
	for _, dir := range s.narrowed {
		if os.Chmod(dir, 0o777) == nil {
			must(linux.New().EnsureDir(dir, 0o700))
		}
	}
}

// tellingEtcd records which member has really left.
type tellingEtcd struct {
	lastingEtcd
	record func(etcd.Action)
}

func (e tellingEtcd) Leave(ctx context.Context, peerURL string) (bool, error) {
	left, err := e.lastingEtcd.Leave(ctx, peerURL)
	if left {
		e.record(etcd.Action{Verb: etcd.Remove, PeerURL: peerURL})
	}
	return left, err
}

// warnUI also records warnings: a plan names everything that stays.
type warnUI struct {
	ui.UI
	record *phasetest.Record
}

func (w warnUI) Warnf(format string, args ...any) {
	w.record.Add("warn " + fmt.Sprintf(format, args...))
}

func (w warnUI) Start(phase string) (ui.UI, func(error)) {
	w.record.Add("phase " + phase)
	in, end := w.UI.Start(phase)
	return warnUI{in, w.record}, end
}

// run resets a host, and returns its actions and the run's outcome.
func (s *remains) run(t *testing.T, h host.Host, e func(*phasetest.Record) etcd.Etcd, on func(host.Host, *phasetest.Record) host.Host) (*phasetest.Record, host.Host, string) {
	t.Helper()
	r := &phasetest.Record{}
	n, _, err := config.LoadReset(nil, s.flags, config.Options{Facts: config.HostFacts{Sockets: []string{"/run/x.sock"}}})
	if err != nil {
		t.Fatal(err)
	}
	h = on(h, r)
	err = step.Run(t.Context(), &step.Env{Config: n, Host: h, Etcd: e(r), UI: warnUI{phasetest.QuietUI(), r}}, Node(), step.Options{Skip: n.SkipPhases, Serial: true})
	return r, h, fmt.Sprint(err)
}

// seen lists everything on a host: directories with a slash, and the contents of files that may be rewritten.
func seen(t *testing.T, h host.Host, dir string, all map[string]string) map[string]string {
	t.Helper()
	entries, err := h.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case slices.Contains([]string{"/proc", "/run", "/var/fake"}, path):
		case e.IsDir():
			all[path+"/"] = ""
			seen(t, h, path, all)
		case filepath.Dir(path) == "/etc":
			data, err := h.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(data)
		default:
			all[path] = ""
		}
	}
	return all
}

// TestResetPlanIsTrue generates hosts, plans each reset, runs it, and compares the two step by step, warning by warning, and by
// the remaining files. Each host is a process with its own namespaces and root directory, so it can mount file systems.
func TestResetPlanIsTrue(t *testing.T) {
	const variants = 32
	const variable = "SLIPWAY_TEST_RESET_ROOT"
	root, apart := os.LookupEnv(variable)
	for seed := range uint64(variants) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if apart {
				enter(t, root)
				resetPlanIsTrue(t, generateRemains(seed))
				return
			}
			t.Parallel()
			parent, _, _ := strings.Cut(t.Name(), "/")
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", fmt.Sprintf("-test.run=^%s$/^%d$", parent, seed))
			cmd.Env = append(os.Environ(), variable+"="+teststage.Dir(t))
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
			if os.Geteuid() != 0 {
				cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
				cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, os.ErrPermission) {
				t.Skipf("this machine gives no namespace: %v", err)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// enter makes root this process's root directory, with the kernel's files in it.
func enter(t *testing.T, root string) {
	t.Helper()
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", root, "tmpfs", 0, ""),
		os.Mkdir(root+"/proc", 0o755),
		unix.Mount("/proc", root+"/proc", "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Chroot(root), os.Chdir("/"))
	if err != nil {
		t.Fatal(err)
	}
}

func resetPlanIsTrue(t *testing.T, s *remains) {
	s.build(t)
	h := phasetest.NewLastingHost("")
	h.HasPods(s.pods)
	var plans []*phasetest.Record
	before := seen(t, h, "/", map[string]string{})
	var overlay host.Host
	var ends string
	for range 2 {
		var r *phasetest.Record
		r, overlay, ends = s.run(t, h, func(r *phasetest.Record) etcd.Etcd { return etcd.NewPlan(r.OnEtcd) },
			func(h host.Host, r *phasetest.Record) host.Host { return plan.NewOverlay(h, r.OnHost) })
		plans = append(plans, r)
	}
	if diff := cmp.Diff(plans[0].InOrder(), plans[1].InOrder()); diff != "" {
		t.Errorf("the second plan differs from the first:\n%s", diff)
	}
	if diff := cmp.Diff(before, seen(t, h, "/", map[string]string{})); diff != "" {
		t.Errorf("the plan changed the host:\n%s", diff)
	}
	done, _, ended := s.run(t, h, func(r *phasetest.Record) etcd.Etcd { return tellingEtcd{lastingEtcd{host: h}, r.OnEtcd} },
		func(h host.Host, r *phasetest.Record) host.Host { return plan.NewRecorder(h, r.OnHost) })
	planned := plans[1].InOrder()
	if s.alone { // a plan asks nobody, so it can't know
		planned = slices.DeleteFunc(planned, func(e string) bool { return strings.HasPrefix(e, string(etcd.Remove)) })
	}
	if diff := cmp.Diff(planned, done.InOrder()); diff != "" || ends != ended {
		t.Errorf("the plan, which ends with %s, is not what the run did, which ended with %s (-plan +run):\n%s", ends, ended, diff)
	}
	if diff := cmp.Diff(seen(t, overlay, "/", map[string]string{}), seen(t, h, "/", map[string]string{})); diff != "" {
		t.Errorf("the remaining files differ from the plan (-plan +run):\n%s", diff)
	}
	if len(s.narrowed) > 0 || ended != "<nil>" {
		return
	}
	again, _, _ := s.run(t, h, func(r *phasetest.Record) etcd.Etcd { return etcd.NewPlan(r.OnEtcd) },
		func(h host.Host, r *phasetest.Record) host.Host { return plan.NewOverlay(h, r.OnHost) })
	if len(again.Host) > 0 {
		t.Errorf("the run left work to do: %v", again.Host)
	}
}
