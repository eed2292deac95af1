// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const playbookEnv = "SLIPWAY_PLAYBOOK_STAGE"

// playbookProgram is the program the link leads to. With kubeadm's path, the test tells where a row is untrue of kubeadm.
var playbookProgram = os.Getenv("SLIPWAY_PLAYBOOK_PROGRAM")

// playbook is what a well-known tool does with kubeadm on one host.
type playbook struct {
	origin string
	fresh  bool              // The host isn't a control plane yet.
	files  map[string]string // Files the tool writes beforehand, by path: the names of files in testdata/playbooks, or contents.
	steps  []playbookStep
}

// playbookStep is a command line of a playbook, and what the playbook expects of it.
type playbookStep struct {
	does   string   // for bash, with the pipes the playbook reads the output through
	out    string   // pattern of the whole standard output; any output if empty
	err    string   // pattern in standard error
	code   int      // exit code
	leaves []string // paths that exist afterwards
	only   string   // why kubeadm does otherwise
}

// TestPlaybookSteps runs the command sequences of well-known tools through a link named kubeadm, on a host of its own, with files
// in memory and an API on loopback. The sequences that need a real cluster are in test/e2e.
func TestPlaybookSteps(t *testing.T) {
	if os.Getenv(playbookEnv) != "" {
		runPlaybooks(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may make namespaces")
	}
	reexec(t, []string{playbookEnv + "=1", "PATH=/tmp/bin", "HOME=/root", "SLIPWAY_PLAYBOOK_PROGRAM=" + playbookProgram},
		unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
}

// runPlaybooks gives each playbook a host as it expects it.
func runPlaybooks(t *testing.T) {
	const testdata = "../../testdata/playbooks"
	names, err := os.ReadDir(testdata)
	must(t, err)
	configs := map[string]string{}
	for _, entry := range names {
		data, err := os.ReadFile(filepath.Join(testdata, entry.Name()))
		must(t, err)
		configs[entry.Name()] = string(data)
	}
	program, err := os.ReadFile(cmp.Or(playbookProgram, "/proc/self/exe"))
	must(t, err)
	awk, err := filepath.EvalSymlinks("/usr/bin/awk") // by a link in /etc, which the stage hides
	must(t, err)

	s := newStage(t)
	must(t, os.Remove("/tmp/bin/sh"))
	must(t, os.Symlink(awk, "/tmp/bin/awk"))
	put(t, "/tmp/bin/kubeadm", string(program), 0o755)
	for _, p := range playbooks {
		t.Run(p.origin, func(t *testing.T) {
			s.reset(t, p.fresh)
			for path, text := range p.files {
				put(t, path, cmp.Or(configs[text], text), 0o640)
			}
			for _, step := range p.steps {
				if step.only == "" || playbookProgram == "" {
					step.run(t)
				}
			}
		})
	}
}

func (s playbookStep) run(t *testing.T) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-o", "pipefail", "-c", s.does)
	cmd.Env = []string{"PATH=/tmp/bin:/usr/bin:/bin", "HOME=/root", "TMPDIR=/tmp"}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if code := cmd.ProcessState.ExitCode(); code != s.code || err != nil && !errors.As(err, &exit) {
		t.Errorf("$ %s\nexit code %d, %v, want %d\n%s%s", s.does, code, err, s.code, &out, &errs)
		return
	}
	if s.out != "" && !regexp.MustCompile(`^(?:`+s.out+`)\n?$`).Match(out.Bytes()) {
		t.Errorf("$ %s\nprints %q, want %s\n%s", s.does, &out, s.out, &errs)
	}
	if s.err != "" && !regexp.MustCompile(s.err).Match(errs.Bytes()) {
		t.Errorf("$ %s\nreports %q, want %s", s.does, &errs, s.err)
	}
	for _, path := range s.leaves {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("$ %s\nleaves no %s: %v", s.does, path, err)
		}
	}
}
