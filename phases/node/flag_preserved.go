// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// FlagPreserved reports whether other has this flag of mine, or a flag that names the same file in another directory. A policy
// file's contents have to be the same, too.
func FlagPreserved(env *step.Env, f manifests.Flag, mine, other *corev1.Pod) bool {
	if !f.IsIn(mine) {
		return true // an ineffective flag
	}
	return slices.ContainsFunc(f.EffectiveIn(other), func(o manifests.Flag) bool {
		if f.NamesPolicy() {
			return sameFile(env, thisnode.OnHostOr(mine, f.Value), thisnode.OnHostOr(other, o.Value))
		}
		return f.Same(o) || moved(f, o)
	})
}

// sameFile reports whether two paths of this host are equal or have equal contents. If either can't be read, they differ.
func sameFile(env *step.Env, a, b string) bool {
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

// moved reports whether both name the same file in another directory, as after a change of certificatesDir.
func moved(f, other manifests.Flag) bool {
	return f.Name == other.Name && path.IsAbs(f.Value) && path.IsAbs(other.Value) && path.Base(f.Value) == path.Base(other.Value)
}
