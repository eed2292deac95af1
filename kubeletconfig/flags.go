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

// FlagsEnv makes kubeadm-flags.env, an EnvironmentFile of systemd's whose one
// variable the kubelet's unit puts on the command line. What the kubelet gets
// is exactly Flags, whatever the values hold: spaces, quotes, backslashes. A
// control character is an error, for no EnvironmentFile can hold every one.
func FlagsEnv(n *config.Node) ([]byte, error) {
	words := Flags(n)
	for i, w := range words {
		if !utf8.ValidString(w) || strings.ContainsFunc(w, unicode.IsControl) {
			name, _, _ := strings.Cut(w, "=")
			return nil, errors.Errorf("nodeRegistration.kubeletExtraArgs: the flag %q holds a line break or another control character; systemd cannot pass it on", name)
		}
		words[i] = quoteWord(w)
	}
	return []byte(`KUBELET_KUBEADM_ARGS="` + escapeValue.Replace(strings.Join(words, " ")) + "\"\n"), nil
}

// Flags are what the kubelet's command line must say about this node: what
// follows from the configuration, by name, then the user's extra flags in
// their order. An extra flag replaces a following one of the same name.
func Flags(n *config.Node) []string {
	var flags []config.Arg
	add := func(name, value string) {
		given := func(a config.Arg) bool { return a.Name == name }
		if !slices.ContainsFunc(n.KubeletExtraArgs, given) {
			flags = append(flags, config.Arg{Name: name, Value: value})
		}
	}
	if n.Name != n.Hostname {
		add("hostname-override", n.Name)
	}
	if !n.NodeLocalCRISocket() {
		add("container-runtime-endpoint", n.CRISocket)
	}
	// A control plane node is tainted through the API, for its kubelet starts
	// before there is one. A worker must never be without its taints.
	if !n.ControlPlane && len(n.Taints) > 0 {
		add("register-with-taints", taintList(n.Taints))
	}
	slices.SortFunc(flags, func(a, b config.Arg) int { return cmp.Compare(a.Name, b.Name) })
	var words []string
	for _, a := range slices.Concat(flags, n.KubeletExtraArgs) {
		words = append(words, "--"+a.Name+"="+a.Value)
	}
	return words
}

func taintList(taints []corev1.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, t.ToString())
	}
	return strings.Join(out, ",")
}

// quoteWord protects a word of the variable's value from being split or
// changed where the unit says $KUBELET_KUBEADM_ARGS: systemd.service(5),
// section "Command lines". Most words need nothing.
func quoteWord(w string) string {
	if !strings.ContainsAny(w, " '\"\\") {
		return w
	}
	return `"` + escapeWord.Replace(w) + `"`
}

var (
	escapeWord = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	// escapeValue is for a value in double quotes: systemd.exec(5),
	// EnvironmentFile=. Neither $ nor % means anything there.
	escapeValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)
