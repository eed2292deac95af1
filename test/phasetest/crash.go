// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

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
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/leaks"
	teststage "github.com/slipway-k8s/slipway/test/stage"
	"github.com/slipway-k8s/slipway/test/tier"
)

// crashEnv tells this binary to be a run instead of a test. It holds the workflow's name, the root directory, and the API's
// host:port.
const crashEnv = "SLIPWAY_PHASES_TEST_RUN"

type lookingBack func(context.Context, *step.Env) step.Earlier

// Runner runs a command on a host, with the API at an endpoint.
type Runner func(ctx context.Context, h *LastingHost, endpoint string, say io.Writer) error

// Scenario is a workflow that is killed at each of its steps.
type Scenario struct {
	Name string
	// Prepare creates the API and the host's additions to a fresh host.
	Prepare func(t *testing.T, s *Scene) error
	Run     Runner
	// Reads is a file the kubelet reads only when it starts.
	Reads string
	// Renews lists requests that another run repeats; Rewrites reports which files it writes again.
	Renews   []string
	Rewrites func(path string) bool
	// Least is the smallest number of steps in a run; 0 for 10.
	Least int
}

// runIfAsked plays a scenario in a process that a test kills.
func runIfAsked(killable []Scenario) {
	words := strings.Fields(os.Getenv(crashEnv))
	for _, c := range killable {
		if len(words) == 3 && words[0] == c.Name {
			if err := c.Run(context.Background(), NewLastingHost(words[1]), words[2], os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
}

func CrashRun(ctx context.Context, n *config.Node, h *LastingHost, endpoint string, say io.Writer, workflow []step.Phase, lookBack lookingBack) error {
	defer h.Real.Close()
	end, err := h.Real.Lock()
	if err != nil {
		return err
	}
	defer end()
	if limit := h.Limit; limit > 0 {
		n.Timeouts.KubernetesAPICall, n.Timeouts.KubeletHealthCheck, n.Timeouts.UpgradeManifests = limit, limit, limit
	}
	options := CrashOptions(h, endpoint, n.ControlPlane, n.Paths.AdminKubeconfig, n.Paths.KubeletKubeconfig(), n.Timeouts.KubernetesAPICall)
	env := &step.Env{Config: n, Host: h, Cluster: cluster.New(options), Etcd: h.Members(), UI: ui.NewLines(say, io.Discard)}
	if lookBack != nil {
		env.Earlier = lookBack(ctx, env)
	}
	if h.Plans != nil {
		h.Plans(env)
	}
	return step.Run(ctx, env, workflow, step.Options{Skip: h.skip})
}

// CrashOptions lead to a scene's API with the node's credentials.
func CrashOptions(h *LastingHost, endpoint string, controlPlane bool, admin, kubelet string, limit time.Duration) cluster.Options {
	if controlPlane {
		return cluster.Options{Kubeconfig: admin, SuperAdmin: "/etc/kubernetes/super-admin.conf", ReadFile: h.ReadFile, Endpoint: endpoint, Timeout: limit}
	}
	// A worker has only the kubelet's rights.
	return cluster.Options{Kubeconfig: kubelet, Timeout: limit, ReadFile: func(path string) ([]byte, error) {
		data, err := h.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return embedded(h, data)
	}}
}

// Scene is a fresh host, with the place to kill a run on it.
type Scene struct {
	Scenario
	Root string
	API  *fakeapi.Server

	mu      sync.Mutex
	pid     int
	Writing int // requests so far that would change something
	after   int // the run is killed after this request, counted from 1; 0 for none
}

func NewScene(t *testing.T, c Scenario) *Scene {
	t.Helper()
	root, err := os.MkdirTemp(teststage.Dir(t), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &Scene{Scenario: c, Root: root}
	if err := errors.Join(Furnish(root), c.Prepare(t, s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Scene) Close() {
	s.API.CloseClientConnections()
	s.API.Close()
	_ = os.RemoveAll(s.Root)
}

// Spoil kills the run after a request that changed something, before the run gets the answer.
func (s *Scene) Spoil(r *http.Request) fakeapi.Fault {
	if r.Method == http.MethodGet {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Writing++
	if s.Writing != s.after {
		return nil
	}
	pid := s.pid
	return func(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
		defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
		fakeapi.LoseAnswer(w, r, serve)
	}
}

// visible omits changes to a file before it gets its name. crash_files_test.go in test/e2e tests those.
func visible(s kill.Step) bool {
	return !slices.Contains([]string{"openat", "write", "fchmod"}, s.Call)
}

// process runs the workflow as a separate process. It's killed before change number at, or when Spoil decides.
func (s *Scene) process(t *testing.T, at int) kill.Run {
	t.Helper()
	var said bytes.Buffer
	cmd := s.Command(&said)
	run := kill.Run{At: at, Count: visible, Below: []string{s.Root + "/etc", s.Root + "/run", s.Root + "/var"}}
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
		t.Errorf("%s: %v\n%s", s.Name, run.Status, said.String())
	}
	return run
}

func (s *Scene) Command(say io.Writer) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", s.Name)
	cmd.Env = append(os.Environ(), crashEnv+"="+strings.Join([]string{s.Name, s.Root, s.API.Listener.Addr().String()}, " "))
	cmd.Stderr = say
	return cmd
}

func (s *Scene) untraced(cmd *exec.Cmd, run *kill.Run) error {
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

func (s *Scene) Again(ctx context.Context) (string, error) {
	s.mu.Lock()
	s.after = 0
	s.mu.Unlock()
	return s.On(ctx, NewLastingHost(s.Root))
}

// On runs the workflow on a host, within this process.
func (s *Scene) On(ctx context.Context, h *LastingHost) (string, error) {
	for {
		var said bytes.Buffer
		err := s.Run(ctx, h, s.API.Listener.Addr().String(), &said)
		var locked *host.LockedError
		if !errors.As(err, &locked) {
			return said.String(), err
		}
		// A process started by another test also holds the lock's descriptor until it executes its program.
		time.Sleep(time.Millisecond)
	}
}

func KillEach(t *testing.T, killable []Scenario) {
	const crashSample = 6 // of some 50 in each workflow
	for _, c := range killable {
		t.Run(c.Name, func(t *testing.T) {
			want := NewScene(t, c)
			defer want.Close()
			whole := want.process(t, 0)
			if t.Failed() {
				return
			}
			calls := want.Writing
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
			if whole.Changes+calls < cmp.Or(c.Least, 10) {
				t.Error("too few steps to be plausible")
			}
		})
	}
}

func crashAt(t *testing.T, want *Scene, at, after int) {
	c := want.Scenario
	s := NewScene(t, c)
	defer s.Close()
	s.after = after
	killed := s.process(t, at)
	if !killed.Status.Signaled() {
		return // phases run side by side, so a run may take fewer steps
	}
	where := fmt.Sprintf("killed after write %d to the API", after)
	if at > 0 {
		where = "killed before " + killed.Steps[len(killed.Steps)-1].String()
	}
	s.FinishesAs(t, want, where)
	stamped, written := s.Stamps(t), len(s.API.Writes())
	said, err := s.Again(t.Context())
	writes := slices.DeleteFunc(s.API.Writes()[written:], func(w string) bool { return slices.Contains(c.Renews, w) })
	if diff := gocmp.Diff(stamped, s.Stamps(t)); err != nil || diff != "" || len(writes) > 0 {
		t.Errorf("%s: the third run: %v; it wrote %v to the API, and changed files:\n%s\n%s", where, err, writes, diff, said)
	}
}

// Stamps lists the modes and times of all files except the lock and Rewrites.
func (s *Scene) Stamps(t *testing.T) map[string]string {
	all := Stamps(t, s.Root)
	maps.DeleteFunc(all, func(path, _ string) bool {
		return strings.HasPrefix(path, "/run/") || s.Rewrites != nil && s.Rewrites(path)
	})
	return all
}

var (
	randomID  = regexp.MustCompile(`bootstrap-token-[a-z0-9]{6}`)
	changedAt = regexp.MustCompile(`("slipway/changed-by-operator":)"[^"]*"|(\\"(?:since|until)\\":\\")[^\\]*`)
)

// left is everything a run left on the host and in the API, without random parts.
func (s *Scene) left(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for path, obj := range s.API.Objects() {
		if strings.Contains(path, "/secrets/") || strings.HasSuffix(path, "/cluster-info") {
			delete(obj, "data")
		}
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		path = randomID.ReplaceAllString(path, "bootstrap-token-X")
		all[path] += changedAt.ReplaceAllString(randomID.ReplaceAllString(string(data), "bootstrap-token-X"), "$1$2")
	}
	err := filepath.WalkDir(s.Root, func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, s.Root)
		if err != nil || strings.HasPrefix(rel, "/run/slipway.lock") || strings.HasPrefix(rel, "/proc") || strings.HasPrefix(rel, KubeletActive) && rel != KubeletActive {
			return err
		}
		if d.IsDir() && (rel == fakeContainers || rel == "/etc/kubernetes/tmp") { // names with times
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
	kept, err := keptBefore(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, kept)
	maps.Copy(all, NewLastingHost(s.Root).RunningPods())
	running, _ := os.Stat(s.Root + KubeletActive)
	file, _ := os.Stat(s.Root + s.Reads)
	all["the kubelet has read "+s.Reads] = fmt.Sprint(running != nil && file != nil && !running.ModTime().Before(file.ModTime()))
	return all
}

// Main is TestMain for a package whose workflows are killed in the scenarios.
func Main(m *testing.M, scenarios ...Scenario) {
	kill.Play()
	runIfAsked(scenarios)
	leaks.Main(m)
}
