// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestJoinArguments finds the arguments in the output of both programs.
func TestJoinArguments(t *testing.T) {
	const want = "192.0.2.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:00 --ignore-preflight-errors=SystemVerification"
	for name, text := range map[string]string{
		"kubeadm": "Then you can join any number of worker nodes by running the following on each as root:\n\n" +
			"kubeadm join 192.0.2.1:6443 --token abcdef.0123456789abcdef \\\n\t--discovery-token-ca-cert-hash sha256:00 \n",
		"slipway": "slipway join 192.0.2.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:00\n",
	} {
		args, err := joinArguments(text)
		if got := strings.Join(args, " "); err != nil || got != want {
			t.Errorf("%s: %q, error %v", name, got, err)
		}
	}
	if _, err := joinArguments("nothing to join"); err == nil {
		t.Error("no error where there is no command")
	}
}
