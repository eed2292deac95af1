// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Flag is a component's command-line flag, without its dashes. Words has it as written: two words if its value stands apart.
type Flag struct {
	Name, Value string
	Words       []string
}

// FlagsOf parses flags as the programs do: with one or two dashes, and underscores for dashes.
func FlagsOf(words []string) []Flag {
	var list []Flag
	for i, word := range words {
		name, value, joined := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		f := Flag{strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"), value, words[i : i+1]}
		switch {
		case joined:
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			f.Value, f.Words = words[i+1], words[i:i+2]
		default:
			f.Value = "true"
		}
		list = append(list, f)
	}
	return list
}

// PodFlags parses the flags in the command and the arguments of a component's container in its static Pod, otherwise of a Pod's first
// container; none without a Pod or a container.
func PodFlags(pod *corev1.Pod) []Flag {
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return nil
	}
	c := &pod.Spec.Containers[componentContainer(pod)]
	return FlagsOf(slices.Concat(c.Command, c.Args))
}

// FlagsNamed returns the flags of this name, in their order.
func FlagsNamed(flags []Flag, name string) []Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f Flag) bool { return f.Name != name })
}

// FlagOf returns a flag's value as the program in a static Pod takes it; empty if it isn't set.
func FlagOf(pod *corev1.Pod, name string) string {
	return lastValue(PodFlags(pod), name)
}

func lastValue(flags []Flag, name string) string {
	if list := FlagsNamed(flags, name); len(list) > 0 {
		return list[len(list)-1].Value
	}
	return ""
}

// Same reports whether both have the same name and value, however they're written.
func (f Flag) Same(other Flag) bool { return f.Name == other.Name && f.Value == other.Value }

// Begins returns the text that the name begins with; empty for none.
func (f Flag) Begins(texts iter.Seq[string]) string {
	for text := range texts {
		if strings.HasPrefix(f.Name, text) {
			return text
		}
	}
	return ""
}

// ProtectiveFlags are prefixes of flags that guard data or access: encryption, audit, admission, authentication and
// authorization, in all components. Without such a flag, stored Secrets can't be read, or somebody may do more than before.
var ProtectiveFlags = []string{
	"admission-control", "anonymous-auth", "api-audiences", "audit-", "auth-token", "authentication-", "authorization-", "auto-tls",
	"cert-file", "cipher-suites", "client-ca-file", "client-cert-", "client-crl-file", "disable-admission-plugins",
	"enable-admission-plugins", "enable-bootstrap-token-auth", "encryption-provider-config", "key-file",
	"kubelet-certificate-authority", "oidc-", "peer-auto-tls", "peer-cert-", "peer-client-cert-", "peer-crl-file", "peer-key-file",
	"peer-skip-client-san-verification", "peer-trusted-ca-file", "requestheader-", "service-account-", "tls-", "token-auth-file",
	"trusted-ca-file", "use-service-account-credentials",
}

// EncryptionFlag names the file with the encryption keys: with another file, Secrets can't be read.
const EncryptionFlag = "encryption-provider-config"

// policyFlags name files with rules for encryption, audit, admission and access.
var policyFlags = []string{
	"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-webhook-config-file", EncryptionFlag,
}

// NamesPolicy reports whether the flag's value is a file with rules for encryption, audit, admission or access.
func (f Flag) NamesPolicy() bool { return slices.Contains(policyFlags, f.Name) }

// EffectiveIn returns the effective flags of this name in a static Pod. If they name a policy, only the last counts.
func (f Flag) EffectiveIn(pod *corev1.Pod) []Flag {
	list := FlagsNamed(PodFlags(pod), f.Name)
	if f.NamesPolicy() && len(list) > 0 {
		return list[len(list)-1:]
	}
	return list
}

// IsIn reports whether a static Pod has the flag, with this value, in effect.
func (f Flag) IsIn(pod *corev1.Pod) bool { return slices.ContainsFunc(f.EffectiveIn(pod), f.Same) }
