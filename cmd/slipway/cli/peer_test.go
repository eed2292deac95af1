// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// saidBy returns the output of init's phases, in a program of that name.
func saidBy(t *testing.T, program string, names ...string) string {
	t.Helper()
	var out, progress bytes.Buffer
	g := &Globals{Program: program, Streams: Streams{Out: &out, Err: &progress}}
	node := fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument+"controlPlaneEndpoint: k8s.example.org:6443\n")
	node.UploadCerts, node.CertificateKey = true, config.NewSecret(strings.Repeat("ab", 32))
	env := &step.Env{Config: node, Host: teststage.New(t), Cluster: cluster.NewPlan(func(cluster.Action) {}, nil), UI: NewUI(g)}
	var workflow []step.Phase
	for _, name := range append([]string{"certs"}, names...) {
		all := bootstrap.Init()
		i := slices.IndexFunc(all, func(p step.Phase) bool { return p.Name == name })
		workflow = append(workflow, all[i].Needing())
	}
	if err := step.Run(t.Context(), env, workflow, step.Options{Serial: true}); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	return out.String()
}

// inner returns a pattern's first group in a text.
func inner(pattern, text string) string {
	if found := regexp.MustCompile(pattern).FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// TestPlaybooks: called kubeadm, the program prints everything public playbooks and scripts extract from kubeadm's standard
// output, in the same ways. Called slipway, it prints nothing but the results.
func TestPlaybooks(t *testing.T) {
	key := strings.Repeat("ab", 32)
	shared := saidBy(t, "kubeadm", "upload-certs")
	lines := strings.Split(strings.TrimSuffix(shared, "\n"), "\n")
	all := saidBy(t, "kubeadm", "upload-certs", "show-join-command")
	worker := strings.Join(strings.SplitAfter(strings.TrimSuffix(all, "\n"), "\n")[strings.Count(all, "\n")-2:], "") // tail -2
	plane := inner(`(?s)`+regexp.QuoteMeta(planesJoinWith)+`\n\n(.*?)\n\n`, all)
	_, afterColon, _ := strings.Cut(shared, ":")
	_, afterHeading, _ := strings.Cut(shared, "Using certificate key:")
	without := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(l, "upload-certs") })
	words := slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return regexp.MustCompile(`\b(certificate|Namespace)\b`).MatchString(l)
	})
	for script, got := range map[string]string{
		"upload-certs: stdout_lines[-1]":                        lines[len(lines)-1],
		"upload-certs: stdout_lines[2]":                         lines[2],
		"upload-certs: ${token#*:}":                             strings.TrimSpace(afterColon),
		"upload-certs: split('Using certificate key:')":         strings.TrimSpace(afterHeading),
		"upload-certs: grep -v upload-certs":                    strings.Join(without, "\n"),
		"upload-certs: grep -vw -e certificate -e Namespace":    strings.Join(words, "\n"),
		"init: regex_search('--certificate-key ([^ ]+)')":       inner(`--certificate-key ([^ \n]+)`, all),
		"init: regex_search('(?<=certificate-key )[-0-9a-f]+')": inner(`certificate-key ([-0-9a-f]+)`, all),
	} {
		if got != key {
			t.Errorf("%s is %q, want the key, in:\n%s", script, got, all)
		}
	}
	const join = "kubeadm join k8s.example.org:6443 --token abcdef.0123456789abcdef \\\n\t--discovery-token-ca-cert-hash sha256:"
	if !strings.HasPrefix(worker, join) || strings.Contains(worker, "control-plane") || !strings.HasPrefix(strings.TrimSpace(plane), join) ||
		!strings.HasSuffix(plane, " \\\n\t--control-plane --certificate-key "+key) {
		t.Errorf("workers join with %q\ncontrol planes with %q\nin:\n%s", worker, plane, all)
	}
	if strings.Count(all, "kubeadm join") != 2 || !strings.Contains(all, initialized) || strings.Index(all, initialized) > strings.Index(all, "kubeadm join") ||
		!strings.Contains(all, nodesJoinWith+"\n\n"+worker) {
		t.Errorf("init prints:\n%s", all)
	}
	own := saidBy(t, "slipway", "upload-certs", "show-join-command")
	hash := inner(`(sha256:[0-9a-f]+)`, own)
	ours := "slipway join k8s.example.org:6443 --token abcdef.0123456789abcdef \\\n\t--discovery-token-ca-cert-hash " + hash
	if diff := cmp.Diff(key+"\n"+ours+" \\\n\t--control-plane --certificate-key "+key+"\n"+ours+"\n", own); diff != "" {
		t.Errorf("as slipway, -want +got:\n%s", diff)
	}
}

// TestPeerOnlyForText: events have the same facts in their own form.
func TestPeerOnlyForText(t *testing.T) {
	for _, tt := range []struct {
		g    *Globals
		want bool
	}{
		{&Globals{Program: "kubeadm"}, true},
		{&Globals{Program: "kubeadm", Report: &Report{Form: "text"}}, true},
		{&Globals{Program: "kubeadm", Report: &Report{Form: "json"}}, false},
		{&Globals{Program: "slipway"}, false},
	} {
		if got := tt.g.EmulatesKubeadm(); got != tt.want {
			t.Errorf("%+v: %t", tt.g, got)
		}
	}
}
