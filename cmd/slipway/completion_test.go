// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

// TestCompletion asks like a shell: for candidates, then a directive.
func TestCompletion(t *testing.T) {
	const list = cobra.ShellCompDirectiveNoFileComp
	for _, tt := range []struct {
		line      string
		want      []string // some of the candidates
		not       string
		directive cobra.ShellCompDirective
	}{
		{"init --", []string{"--service-dns-domain", "--pod-network-cidr", "--timeline"}, "--discovery-file", list},
		{"init --skip-phases ", []string{"preflight", "certs", "certs/etcd-peer", "addon/coredns"}, "etcd-join", list},
		{"join --skip-phases ", []string{"kubelet-start", "etcd-join"}, "addon", list},
		{"init --skip-phases certs,add", []string{"certs,addon", "certs,addon/kube-proxy"}, "certs", list},
		{"init --ignore-preflight-errors ", []string{"Swap", "NumCPU", "all"}, "certs", list},
		{"reset --ignore-preflight-errors Sw", []string{"Swap"}, "all", list},
		{"host reset ", []string{"phase"}, "--dry-run", list},
		{"host reset --skip-phases ", []string{"preflight", "images", "record"}, "remove-etcd-member", list},
		{"host reset --skip-phases images,ke", []string{"images,kernel"}, "kernel", list},
		{"host reset --ignore-preflight-errors ", []string{"NoContainers", "all"}, "Swap", list},
		{"host reset phase preflight --ignore-preflight-errors ", []string{"NoContainers"}, "Swap", list},
		{"host prepare --skip-phases ", []string{"swap", "container-runtime"}, "kubelet-start", list},
		{"host prepare --ignore-preflight-errors ", []string{"Programs", "DefaultRoute"}, "NumCPU", list},
		{"up --skip-phases ", []string{"prepare/swap", "init/certs/ca", "join/kubelet-start", "wait-node"}, "swap", list},
		{"down --skip-phases ", []string{"reset/preflight", "host/images"}, "images", list},
		{"upgrade node --skip-phases ", []string{"preflight"}, "wait-node", list},
		{"config images list --feature-gates ", []string{"RootlessControlPlane=true"}, "text", list},
		{"init -o ", []string{"text", "json", "yaml"}, "kyaml", list},
		{"version -o ", []string{"short", "json", "yaml"}, "text", list},
		{"token list --output ", []string{"text", "kyaml", "jsonpath="}, "short", list | cobra.ShellCompDirectiveNoSpace},
		{"token create --usages ", []string{"signing", "authentication"}, "all", list},
		{"config print init-defaults --component-configs ", []string{"KubeletConfiguration"}, "json", list},
		{"init --config ", nil, "json", cobra.ShellCompDirectiveDefault},
		{"init --patches ", nil, "json", cobra.ShellCompDirectiveFilterDirs},
		{"certs renew all --cert-dir ", nil, "json", cobra.ShellCompDirectiveFilterDirs},
		{"init --node-name ", nil, "json", list},
		{"join ", []string{"phase"}, "json", list},
		{"completion ", []string{"bash", "zsh", "fish", "powershell"}, "json", list},
	} {
		var out, errs bytes.Buffer
		args := strings.Split(tt.line, " ")
		code := execute(t.Context(), "slipway", cli.Streams{Out: &out, Err: &errs}, append([]string{cobra.ShellCompNoDescRequestCmd}, args...))
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		directive := ":" + strconv.Itoa(int(tt.directive))
		if code != 0 || got[len(got)-1] != directive || slices.Contains(got, tt.not) {
			t.Errorf("%q: exit code %d, candidates %q, want %s and no %q", tt.line, code, got, directive, tt.not)
		}
		for _, want := range tt.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q is not among %q", tt.line, want, got)
			}
		}
	}
}
