// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/inventory"
)

// encryptionFlag names the file with the keys of what is stored encrypted: with another file, Secrets can't be read.
const encryptionFlag = "encryption-provider-config"

// policyFlags name files that say what is encrypted, audited, admitted and allowed.
var policyFlags = []string{
	"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-webhook-config-file", encryptionFlag,
}

func (f flag) namesPolicy() bool { return slices.Contains(policyFlags, f.name) }

// countingIn are the flags of the same name in a static Pod. Of those that name a policy, the last one counts.
func (f flag) countingIn(pod *corev1.Pod) []flag {
	list := flagsNamed(podFlags(pod), f.name)
	if f.namesPolicy() && len(list) > 0 {
		return list[len(list)-1:]
	}
	return list
}

func (f flag) isIn(pod *corev1.Pod) bool { return slices.ContainsFunc(f.countingIn(pod), f.same) }

// staysIn reports whether another static Pod has the flag of the static Pod mine, or one that names the same file in another
// directory. Of a policy, the contents have to be the same.
func (f flag) staysIn(env *Env, mine, other *corev1.Pod) bool {
	if !f.isIn(mine) {
		return true // it doesn't count
	}
	return slices.ContainsFunc(f.countingIn(other), func(o flag) bool {
		if f.namesPolicy() {
			return sameFile(env, inventory.OnHost(mine, f.value), inventory.OnHost(other, o.value))
		}
		return f.same(o) || f.movedTo(o)
	})
}

// sameFile reports whether two paths of this host are the same, or have the same contents. If one can't be read, they're different.
func sameFile(env *Env, a, b string) bool {
	if a == b {
		return true
	}
	one, err := env.Host.ReadFile(a)
	if err != nil {
		return false
	}
	other, err := env.Host.ReadFile(b)
	return err == nil && bytes.Equal(one, other)
}
