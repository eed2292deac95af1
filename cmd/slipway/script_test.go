// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/pkg/errors"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/leaks"
	"github.com/slipway-k8s/slipway/test/schema"
)

func TestMain(m *testing.M) {
	programs := map[string]func(){
		"slipway": main,
		"kubeadm": main, // a link of that name
	}
	if programs[filepath.Base(os.Args[0])] == nil {
		if err := hideRun(); err != nil {
			fmt.Fprintln(os.Stderr, "give the tests their own /run:", err)
			os.Exit(1)
		}
	}
	testscript.Main(leakless{m}, programs)
}

// hideRun starts this program again with an empty, read-only /run. Otherwise, root's scripts would share the lock of the machine's
// node, with each other and with a Slipway that works on this machine. Without /run, the lock is in each script's TMPDIR.
func hideRun() error {
	const variable = "SLIPWAY_TEST_RUN_HIDDEN"
	if os.Geteuid() != 0 || os.Getenv(variable) != "" {
		return nil
	}
	runtime.LockOSThread() // Exec keeps the namespace of the thread that calls it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_RDONLY, ""); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), variable+"=1"))
}

// leakless fails if the tests leave goroutines behind.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	code := l.m.Run()
	if err := leaks.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "the tests leave goroutines:", err)
		return 1
	}
	return code
}

// TestScripts runs the real program with the scripts in testdata/script/*.txtar.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "../../testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"schema": checkSchema,
			"socket": makeSockets,
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, errors.Errorf("there is no condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
	})
}

// makeSockets makes sockets nobody listens on: socket FILE...
func makeSockets(ts *testscript.TestScript, _ bool, args []string) {
	for _, path := range args {
		path = ts.MkAbs(path)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(unix.Mknod(path, unix.S_IFSOCK|0o600, 0))
	}
}

// checkSchema checks a file, or stdout, against docs/plan.schema.json, or each of its lines against docs/events.schema.json:
// schema plan|events FILE.
func checkSchema(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: schema plan|events FILE")
	}
	text := []byte(ts.ReadFile(args[1]))
	if args[0] == "plan" {
		s, err := schema.Plan()
		ts.Check(err)
		ts.Check(s.Check(text))
		return
	}
	s, err := schema.Events()
	ts.Check(err)
	_, err = s.CheckLines(text)
	ts.Check(err)
}
