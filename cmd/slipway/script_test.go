// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"sync"
	"testing"

	"github.com/pkg/errors"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"slipway": main,
		"kubeadm": main, // a link of that name
	})
}

// TestScripts runs the real program as scripts say: testdata/script/*.txtar.
func TestScripts(t *testing.T) {
	var node sync.Mutex
	testscript.Run(t, testscript.Params{
		Dir:           "../../testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// alone keeps the scripts apart that take the node's lock.
			"alone": func(ts *testscript.TestScript, _ bool, _ []string) {
				node.Lock()
				ts.Defer(node.Unlock)
			},
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, errors.Errorf("there is no condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
	})
}
