// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// TestCommandsInMessages holds the form in which messages name commands of this program: in any other form, a
// user who calls it by another name would still read slipway.
func TestCommandsInMessages(t *testing.T) {
	var commands []string
	for _, c := range newRoot("slipway", streams{}, nil).Commands() {
		commands = append(commands, "slipway "+c.Name())
	}
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if strings.HasSuffix(path, "internal/support/support.go") {
			return nil // not a message of this program
		}
		for _, text := range literals(t, path) {
			found += strings.Count(text, ownName) + strings.Count(text, ownJoin) + strings.Count(text, ownUp) + strings.Count(text, ownUpgrade)
			plain := strings.NewReplacer(ownName, "", ownJoin, "", ownUp, "", ownUpgrade, "").Replace(text)
			for _, command := range commands {
				if strings.Contains(plain, command) {
					t.Errorf("%s: %q names a command without a backquote before it", path, text)
				}
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("found %d commands in messages, %v", found, err)
	}
}

// TestJoinCommandIsInTheCallersName for people and for programs: it is copied to other hosts, where the same name is used.
func TestJoinCommandIsInTheCallersName(t *testing.T) {
	const ours, theirs = "slipway join 10.0.0.1:6443 --token abcdef", "kubeadm join 10.0.0.1:6443 --token abcdef"
	var lines, events bytes.Buffer
	namedUI{ui.NewLines(&lines, &lines), "kubeadm"}.Result(ours)
	e := ui.NewEvents("kubeadm", "v1", "init", &events)
	namedUI{e, "kubeadm"}.Outcome(ui.Outcome{JoinCommand: config.NewSecret(ours), ControlPlaneJoinCommand: config.NewSecret(ours + " --control-plane")})
	e.End(ui.Summary{}, nil)
	for name, said := range map[string]string{"people": lines.String(), "programs": events.String()} {
		if !strings.Contains(said, theirs) || strings.Contains(said, "slipway join") {
			t.Errorf("%s are told %q", name, said)
		}
	}
	if want := strings.Count(events.String(), theirs); want != 2 {
		t.Errorf("events have %d commands", want)
	}
	var out bytes.Buffer
	err := printList(&outputOptions{form: "json"}, &globals{program: "kubeadm", streams: streams{out: &out}},
		[]*tokenObject{{TypeMeta: metav1.TypeMeta{APIVersion: outputAPI, Kind: "BootstrapToken"}, JoinCommand: ours}}, func(io.Writer) error { return nil })
	if err != nil || !strings.Contains(out.String(), theirs) {
		t.Errorf("token create prints %q, %v", out.String(), err)
	}
}

// literals are the strings in a file.
func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out = append(out, text)
		}
		return true
	})
	return out
}
