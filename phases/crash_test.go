// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/kill"
	teststage "github.com/slipway-k8s/slipway/test/stage"
	"github.com/slipway-k8s/slipway/test/tier"
)

// crashEnv tells this binary to be a run instead of a test. It has the workflow's name, the root directory, and the
// API's host:port.
const crashEnv = "SLIPWAY_PHASES_TEST_RUN"

// lookingBack finds out what earlier runs left, for workflows that ask.
type lookingBack func(context.Context, *Env) Earlier

// runner does what a command does, on a host and with the API at an endpoint.
type runner func(ctx context.Context, h *lastingHost, endpoint string, say io.Writer) error

// crashing is a workflow that is killed at each of its steps.
type crashing struct {
	name string
	// prepare creates the API, and what the host has beyond a fresh one.
	prepare func(t *testing.T, s *scene) error
	run     runner
	// reads is a file that the kubelet reads only when it starts.
	reads string
	// renews are writes that another run repeats, as requested; rewrites reports which files it writes again.
	renews   []string
	rewrites func(path string) bool
	// least is how many steps a run takes at least; 0 for 10.
	least int
}

var crashes = []crashing{crashingInit, crashingJoin, crashingPlane, crashingApply, crashingNode, crashingNodePlane, crashingRollback, crashingRollbackPlain,
	crashingRollbackNode}

// killable are all workflows. reset goes on where the others fail, so TestResetFaults tests its faults.
var killable = append([]crashing{crashingReset, crashingResetFlannel}, crashes...)

// runIfAsked is for TestMain.
func runIfAsked(killable []crashing) {
	words := strings.Fields(os.Getenv(crashEnv))
	for _, c := range killable {
		if len(words) == 3 && words[0] == c.name {
			if err := c.run(context.Background(), newLastingHost(words[1]), words[2], os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
}

func crashRun(ctx context.Context, n *config.Node, h *lastingHost, endpoint string, say io.Writer, workflow []Phase, lookBack lookingBack) error {
	defer h.Real.Close()
	end, err := h.Real.Lock()
	if err != nil {
		return err
	}
	defer end()
	if limit := h.limit; limit > 0 {
		n.Timeouts.KubernetesAPICall, n.Timeouts.KubeletHealthCheck, n.Timeouts.UpgradeManifests = limit, limit, limit
	}
	options := crashOptions(h, endpoint, n.ControlPlane, n.Paths.AdminKubeconfig, thisnode.KubeletConf(n), n.Timeouts.KubernetesAPICall)
	env := &Env{Config: n, Host: h, Cluster: cluster.New(options), Etcd: h.members(), UI: ui.NewLines(say, io.Discard)}
	if lookBack != nil {
		env.Earlier = lookBack(ctx, env)
	}
	if h.plans != nil {
		h.plans(env)
	}
	return Run(ctx, env, workflow, Options{Skip: h.skip})
}

// crashOptions lead to the API of a scene with the credentials that a node has.
func crashOptions(h *lastingHost, endpoint string, controlPlane bool, admin, kubelet string, limit time.Duration) cluster.Options {
	if controlPlane {
		return cluster.Options{Kubeconfig: admin, SuperAdmin: "/etc/kubernetes/super-admin.conf", ReadFile: h.ReadFile, Endpoint: endpoint, Timeout: limit}
	}
	// It has only the kubelet's rights.
	return cluster.Options{Kubeconfig: kubelet, Timeout: limit, ReadFile: func(path string) ([]byte, error) {
		data, err := h.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return embedded(h, data)
	}}
}

// scene is a fresh host, and where to kill a run on it.
type scene struct {
	crashing
	root string
	api  *fakeapi.Server

	mu      sync.Mutex
	pid     int
	writing int // requests so far that would change something
	after   int // the one after which the run is killed, from 1; 0 for none
}

func newScene(t *testing.T, c crashing) *scene {
	t.Helper()
	root, err := os.MkdirTemp(teststage.Dir(t), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{crashing: c, root: root}
	if err := errors.Join(furnish(root), c.prepare(t, s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) close() {
	s.api.CloseClientConnections()
	s.api.Close()
	_ = os.RemoveAll(s.root)
}

// spoil kills the run after a request that changed something, before the run gets the answer.
func (s *scene) spoil(r *http.Request) fakeapi.Fault {
	if r.Method == http.MethodGet {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing++
	if s.writing != s.after {
		return nil
	}
	pid := s.pid
	return func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
		fakeapi.LoseAnswer(w, r, serve)
	}
}

// visible omits what happens to a file before it has its name. crash_files_test.go in test/e2e tests that.
func visible(s kill.Step) bool {
	return !slices.Contains([]string{"openat", "write", "fchmod"}, s.Call)
}

// process runs the workflow as a separate process. It is killed before change number at, or when spoil decides.
func (s *scene) process(t *testing.T, at int) kill.Run {
	t.Helper()
	var said bytes.Buffer
	cmd := s.command(&said)
	run := kill.Run{At: at, Count: visible, Below: []string{s.root + "/etc", s.root + "/run", s.root + "/var"}}
	var err error
	if s.after > 0 { // the API kills the run, so nothing is traced
		err = s.untraced(cmd, &run)
	} else {
		err = run.Do(cmd)
	}
	if errors.Is(err, kill.ErrNotAllowed) {
		t.Skip(err)
	} else if err != nil {
		t.Error(err)
	}
	if run.Status.Exited() && run.Status.ExitStatus() != 0 {
		t.Errorf("%s: %v\n%s", s.name, run.Status, said.String())
	}
	return run
}

// command returns the command that runs the workflow as a separate process.
func (s *scene) command(say io.Writer) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", s.name)
	cmd.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{s.name, s.root, s.api.Listener.Addr().String()}, " "))
	cmd.Stderr = say
	return cmd
}

func (s *scene) untraced(cmd *exec.Cmd, run *kill.Run) error {
	s.mu.Lock()
	err := cmd.Start()
	if err == nil {
		s.pid = cmd.Process.Pid
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	_ = cmd.Wait() // the caller checks its status
	run.Status = cmd.ProcessState.Sys().(syscall.WaitStatus)
	return nil
}

// again runs the workflow once more.
func (s *scene) again(ctx context.Context) (string, error) {
	s.mu.Lock()
	s.after = 0
	s.mu.Unlock()
	return s.on(ctx, newLastingHost(s.root))
}

// on runs the workflow on a host, within this process.
func (s *scene) on(ctx context.Context, h *lastingHost) (string, error) {
	for {
		var said bytes.Buffer
		err := s.run(ctx, h, s.api.Listener.Addr().String(), &said)
		var locked *host.LockedError
		if !errors.As(err, &locked) {
			return said.String(), err
		}
		// A process that another test starts also holds the lock's descriptor until it executes its program.
		time.Sleep(time.Millisecond)
	}
}

// TestCrash kills a run at every step at which it changes a file, gives an order to systemd or to the container
// runtime, or writes to the API. The same run must then finish with the result of an undisturbed run. A third run
// changes nothing.
func TestCrash(t *testing.T) {
	killEach(t, killable)
}

func killEach(t *testing.T, killable []crashing) {
	const crashSample = 6 // of some 50 in each workflow
	for _, c := range killable {
		t.Run(c.name, func(t *testing.T) {
			want := newScene(t, c)
			defer want.close()
			whole := want.process(t, 0)
			if t.Failed() {
				return
			}
			calls := want.writing
			var group errgroup.Group
			group.SetLimit(8) // a run mostly waits
			for _, i := range tier.Sample(t, crashSample, whole.Changes+calls) {
				group.Go(func() error {
					if i < whole.Changes {
						crashAt(t, want, i+1, 0)
					} else {
						crashAt(t, want, 0, i-whole.Changes+1)
					}
					return nil
				})
			}
			_ = group.Wait()
			t.Logf("a run has %d changes of files and units, and %d writes to the API", whole.Changes, calls)
			if whole.Changes+calls < cmp.Or(c.least, 10) {
				t.Error("too few steps to be plausible")
			}
		})
	}
}

// crashAt kills one run and checks the next ones.
func crashAt(t *testing.T, want *scene, at, after int) {
	c := want.crashing
	s := newScene(t, c)
	defer s.close()
	s.after = after
	killed := s.process(t, at)
	if !killed.Status.Signaled() {
		return // phases run side by side, so a run may take fewer steps
	}
	where := fmt.Sprintf("killed after write %d to the API", after)
	if at > 0 {
		where = "killed before " + killed.Steps[len(killed.Steps)-1].String()
	}
	s.finishesAs(t, want, where)
	stamped, written := s.stamps(t), len(s.api.Writes())
	said, err := s.again(t.Context())
	writes := slices.DeleteFunc(s.api.Writes()[written:], func(w string) bool { return slices.Contains(c.renews, w) })
	if diff := gocmp.Diff(stamped, s.stamps(t)); err != nil || diff != "" || len(writes) > 0 {
		t.Errorf("%s: the third run: %v; it wrote %v to the API, and changed files:\n%s\n%s", where, err, writes, diff, said)
	}
}

// stamps lists the modes and times of all files except the lock.
func (s *scene) stamps(t *testing.T) map[string]string {
	all := stamps(t, s.root)
	maps.DeleteFunc(all, func(path, _ string) bool {
		return strings.HasPrefix(path, "/run/") || s.rewrites != nil && s.rewrites(path)
	})
	return all
}

var randomID = regexp.MustCompile(`bootstrap-token-[a-z0-9]{6}`)

// left is what a run left on the host and in the API, without what is random.
func (s *scene) left(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for path, obj := range s.api.Objects() {
		if strings.Contains(path, "/secrets/") || strings.HasSuffix(path, "/cluster-info") {
			delete(obj, "data")
		}
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		path = randomID.ReplaceAllString(path, "bootstrap-token-X")
		all[path] += randomID.ReplaceAllString(string(data), "bootstrap-token-X")
	}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, s.root)
		if err != nil || strings.HasPrefix(rel, "/run/slipway.lock") || strings.HasPrefix(rel, "/proc") || strings.HasPrefix(rel, kubeletActive) && rel != kubeletActive {
			return err
		}
		if d.IsDir() && (rel == fakeContainers || rel == "/etc/kubernetes/tmp") { // their names have times
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[rel] = info.Mode().String()
		if slices.Contains([]string{".yaml", ".env"}, filepath.Ext(rel)) {
			data, err := os.ReadFile(path)
			all[rel] += "\n" + string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := keptBefore(s.root)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, kept)
	maps.Copy(all, newLastingHost(s.root).runningPods())
	running, _ := os.Stat(s.root + kubeletActive)
	file, _ := os.Stat(s.root + s.reads)
	all["the kubelet has read "+s.reads] = fmt.Sprint(running != nil && file != nil && !running.ModTime().Before(file.ModTime()))
	return all
}
