// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const flagsVariable = "KUBELET_KUBEADM_ARGS"

// FlagsEnv returns kubeadm-flags.env, a systemd EnvironmentFile with one variable that the kubelet's unit puts on the command
// line. The kubelet gets exactly Flags, even with spaces, quotes and backslashes. Control characters are an error, because an
// EnvironmentFile can't contain all of them.
func FlagsEnv(n *config.Node) ([]byte, error) {
	words := Flags(n)
	for i, w := range words {
		if !utf8.ValidString(w) || strings.ContainsFunc(w, unicode.IsControl) {
			name, _, _ := strings.Cut(w, "=")
			return nil, errors.Errorf("nodeRegistration.kubeletExtraArgs: the flag %q contains a line break or another control character, which systemd cannot pass to the kubelet", name)
		}
		words[i] = quoteWord(w)
	}
	return []byte(flagsVariable + `="` + escape.Replace(strings.Join(words, " ")) + "\"\n"), nil
}

// Flags returns the kubelet's flags for this node: flags derived from the configuration, sorted by name, then the user's extra
// flags in their order. An extra flag replaces a derived flag of the same name.
func Flags(n *config.Node) []string {
	var flags []config.Arg
	add := func(name, value string) {
		if _, given := config.LastArg(n.KubeletExtraArgs, name); !given {
			flags = append(flags, config.Arg{Name: name, Value: value})
		}
	}
	if n.Name != n.Hostname {
		add("hostname-override", n.Name)
	}
	// A control plane node gets its taints through the API, because its kubelet starts before the API server exists. A worker
	// must never be without its taints.
	if !n.ControlPlane && len(n.Taints) > 0 {
		add("register-with-taints", taintList(n.Taints))
	}
	slices.SortStableFunc(flags, func(a, b config.Arg) int { return cmp.Compare(a.Name, b.Name) })
	return config.Words(slices.Concat(flags, n.KubeletExtraArgs))
}

func taintList(taints []corev1.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, t.ToString())
	}
	return strings.Join(out, ",")
}

// quoteWord quotes a word of the variable's value, so systemd doesn't split or change it where the unit says
// $KUBELET_KUBEADM_ARGS: systemd.service(5), section "Command lines". Most words need no quotes.
func quoteWord(w string) string {
	if !strings.ContainsAny(w, " '\"\\") {
		return w
	}
	return `"` + escape.Replace(w) + `"`
}

// escape is for text in double quotes: of a word, and of an EnvironmentFile's value, where $ and % have no meaning either:
// systemd.exec(5), EnvironmentFile=.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
