// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// filePhases are init's phases that write files and need no cluster.
var filePhases = [][]string{
	{"certs", "all"}, {"kubeconfig", "all"}, {"etcd", "local"}, {"control-plane", "all"},
}

const crashConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.11}
nodeRegistration: {name: cp-1, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
encryptionAlgorithm: ECDSA-P256
`

// TestCrashAtEveryFileOperation kills slipway right before each system call that changes a file, and runs the same command again.
func TestCrashAtEveryFileOperation(t *testing.T) {
	beside(t)
	v := victim{T: t, program: filesProgram(t), dir: t.TempDir()}
	for i, args := range filePhases {
		steps := v.phase(i, args)
		t.Logf("%s has %d steps", args[0], steps)
		if steps < 4 {
			t.Errorf("%s: too few steps to be plausible", args)
		}
	}
}

// filesProgram returns the path of bin/slipway.
func filesProgram(t *testing.T) string {
	t.Helper()
	lab, err := nodes.Open(nodes.Options{Name: labPrefix + "files"})
	if err != nil {
		t.Fatal(err)
	}
	path, err := lab.Program(t.Context(), "slipway")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// victim is a program whose root is a directory instead of the host's.
type victim struct {
	*testing.T
	program string
	dir     string
	said    io.Writer // gets a run's output; nil discards it
}

// phase kills one phase at each of its changes, and returns their number. It starts from the files of the earlier phases, and
// leaves those of an undisturbed run.
func (v victim) phase(i int, args []string) int {
	v.Helper()
	before, after := v.around(i)
	whole := v.run(after, args, 0, 0)
	if !whole.Status.Exited() || whole.Status.ExitStatus() != 0 {
		v.Fatalf("%s: %v", args, whole.Status)
	}
	for _, fault := range durable(whole.Steps) {
		v.Errorf("%s: %s", args, fault)
	}
	var group errgroup.Group
	group.SetLimit(4)
	for _, i := range tier.Sample(v, 4, whole.Changes) {
		group.Go(func() error { v.killedAt(before, after, args, i+1); return nil })
	}
	_ = group.Wait()
	return whole.Changes
}

// around returns the root before phase i, and a copy of it to run the phase on.
func (v victim) around(i int) (before, after string) {
	before, after = filepath.Join(v.dir, fmt.Sprint(i)), filepath.Join(v.dir, fmt.Sprint(i+1))
	if i == 0 {
		v.must(os.MkdirAll(filepath.Join(before, "etc"), 0o755))
		v.must(os.Chmod(before, 0o755)) //nolint:gosec // everybody may read a root directory
		v.must(os.WriteFile(filepath.Join(before, "etc/init.yaml"), []byte(crashConfig), 0o644))
	}
	v.copy(before, after)
	return before, after
}

// killedAt kills one run and checks the result of the next. A third run must change nothing.
func (v victim) killedAt(before, after string, args []string, at int) {
	root := filepath.Join(v.dir, fmt.Sprintf("%s-%d", args[0], at))
	v.copy(before, root)
	defer os.RemoveAll(root)
	killed := v.run(root, args, at, 0)
	if !killed.Status.Signaled() {
		return // it took fewer steps this time
	}
	where := fmt.Sprintf("%s, killed before %s", args, killed.Steps[len(killed.Steps)-1])
	if out, err := v.again(root, args); err != nil {
		v.Errorf("%s: the second run failed: %v\n%s", where, err, out)
		return
	}
	if err := errors.Join(intact.Check(root), same(after, root)); err != nil {
		v.Errorf("%s: the second run left: %v", where, err)
		return
	}
	stamps := v.stamps(root)
	if out, err := v.again(root, args); err != nil || !slices.Equal(stamps, v.stamps(root)) {
		v.Errorf("%s: the third run: %v\n%s%s", where, err, out, cmp.Diff(stamps, v.stamps(root)))
	}
}

func (v victim) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v victim) copy(from, to string) {
	v.must(exec.Command("cp", "--archive", from, to).Run())
}

// command returns a command under a umask that hides everything.
func (v victim) command(root string, args []string) *exec.Cmd {
	argv := append([]string{"-c", `umask 077; exec "$@"`, "-", v.program, "--rootfs", root, "init", "phase"}, args...)
	return exec.Command("sh", append(argv, "--config", "/etc/init.yaml")...)
}

// run runs a phase until change number at. That change fails with errno, or the phase is killed there. With at 0 the phase runs
// to its end.
func (v victim) run(root string, args []string, at int, errno syscall.Errno) kill.Run {
	run := kill.Run{Below: []string{filepath.Join(root, "etc"), filepath.Join(root, "var")}, At: at, Fail: errno}
	cmd := v.command(root, args)
	cmd.Stderr = v.said
	if err := run.Do(cmd); errors.Is(err, kill.ErrNotAllowed) {
		v.Skip(err)
	} else if err != nil {
		v.Error(err)
	}
	return run
}

func (v victim) again(root string, args []string) (string, error) {
	out, err := v.command(root, args).CombinedOutput()
	return string(out), err
}

// stamps lists all files with their modes and times.
func (v victim) stamps(root string) []string {
	var list []string
	err := filepath.WalkDir(filepath.Join(root, "etc"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			list = append(list, fmt.Sprintf("%s %s %s", path, info.Mode(), info.ModTime().Format(time.RFC3339Nano)))
		}
		return err
	})
	if err != nil {
		v.Error(err)
	}
	return list
}

// same compares a root with an undisturbed run's: files, modes and contents. It ignores the contents of keys and of their
// signatures.
func same(want, got string) error {
	a, err := contents(want)
	if err != nil {
		return err
	}
	b, err := contents(got)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(a, b); diff != "" {
		return fmt.Errorf("files (-undisturbed +this):\n%s", diff)
	}
	return nil
}

func contents(root string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(rel, "run") || strings.HasPrefix(rel, "tmp") {
			return err
		}
		text := info.Mode().String()
		if ext := filepath.Ext(path); ext == ".yaml" {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += "\n" + string(bytes.TrimSpace(data))
		}
		files[rel] = text
		return nil
	})
	return files, err
}

// durable checks a run's steps for power loss: data must be on disk before its name, and the name before the next step.
func durable(steps []kill.Step) (faults []string) {
	for i, s := range steps {
		if s.Call != "renameat" {
			continue
		}
		name := filepath.Base(s.Path)
		synced := slices.ContainsFunc(steps[:i], func(b kill.Step) bool {
			return b.Call == "fsync" && strings.HasPrefix(filepath.Base(b.Path), "."+name+".")
		})
		if !synced {
			faults = append(faults, s.String()+": the content was not synced before")
		}
		directory := slices.ContainsFunc(steps[i:], func(b kill.Step) bool { return b.Call == "fsync" && b.Path == filepath.Dir(s.Path) })
		if !directory {
			faults = append(faults, s.String()+": the directory was not synced after it")
		}
	}
	return faults
}
