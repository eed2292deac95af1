// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pkg/errors"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/leaks"
	"github.com/slipway-k8s/slipway/test/schema"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){
		"slipway": main,
		"kubeadm": main, // a link of that name
	})
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
	var node sync.Mutex
	testscript.Run(t, testscript.Params{
		Dir:           "../../testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// alone separates scripts that take the node's lock.
			"alone": func(ts *testscript.TestScript, _ bool, _ []string) {
				node.Lock()
				ts.Defer(node.Unlock)
			},
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
