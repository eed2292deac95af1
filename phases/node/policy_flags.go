// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/phases/step"
)

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

const ProtectionCheck = fault.StaticPodProtection

func (f Flag) NamesPolicy() bool { return slices.Contains(policyFlags, f.Name) }

// countingIn returns the effective flags of this name in a static Pod. If they name a policy, only the last counts.
func (f Flag) countingIn(pod *corev1.Pod) []Flag {
	list := FlagsNamed(PodFlags(pod), f.Name)
	if f.NamesPolicy() && len(list) > 0 {
		return list[len(list)-1:]
	}
	return list
}

func (f Flag) IsIn(pod *corev1.Pod) bool { return slices.ContainsFunc(f.countingIn(pod), f.Same) }

// StaysIn reports whether other has this flag of mine, or one that names the same file in another directory. A policy file's
// contents have to be the same, too.
func (f Flag) StaysIn(env *step.Env, mine, other *corev1.Pod) bool {
	if !f.IsIn(mine) {
		return true // an ineffective flag
	}
	return slices.ContainsFunc(f.countingIn(other), func(o Flag) bool {
		if f.NamesPolicy() {
			return sameFile(env, inventory.OnHost(mine, f.Value), inventory.OnHost(other, o.Value))
		}
		return f.Same(o) || f.movedTo(o)
	})
}

// sameFile reports whether two paths of this host are equal or have equal contents. If one can't be read, they differ.
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

// Flag is a command-line flag, of two words if its value stands apart.
type Flag struct {
	Name, Value string
	Words       []string
}

func (f Flag) Same(other Flag) bool { return f.Name == other.Name && f.Value == other.Value }

// movedTo reports whether other names the same file in another directory, as after a change of certificatesDir.
func (f Flag) movedTo(other Flag) bool {
	return f.Name == other.Name && path.IsAbs(f.Value) && path.IsAbs(other.Value) && path.Base(f.Value) == path.Base(other.Value)
}

// Shortened reports whether others, the flags of the same name, have only some of this flag's guards.
func (f Flag) Shortened(others []Flag) bool {
	if len(others) == 0 || !slices.Contains([]string{"authorization-mode", "enable-admission-plugins"}, f.Name) {
		return false
	}
	var left []string
	for _, other := range others {
		left = append(left, strings.Split(other.Value, ",")...)
	}
	return slices.ContainsFunc(strings.Split(f.Value, ","), func(guard string) bool { return !slices.Contains(left, guard) })
}

// Begins returns the text that the name begins with; empty for none.
func (f Flag) Begins(texts iter.Seq[string]) string {
	for text := range texts {
		if strings.HasPrefix(f.Name, text) {
			return text
		}
	}
	return ""
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

func PodFlags(pod *corev1.Pod) []Flag {
	c := &pod.Spec.Containers[0]
	return FlagsOf(slices.Concat(c.Command, c.Args))
}

func FlagsNamed(flags []Flag, name string) []Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f Flag) bool { return f.Name != name })
}

// FlagsReplaced reports whether patches have changed the flags of one name. Adding one of a repeatable flag is no change.
func FlagsReplaced(plain, patched []Flag) bool {
	repeats := []string{"oidc-required-claim", "service-account-issuer", "service-account-key-file", "tls-sni-cert-key"}
	if len(plain) > 0 && slices.Contains(repeats, plain[0].Name) {
		return slices.ContainsFunc(plain, func(f Flag) bool { return !slices.ContainsFunc(patched, f.Same) })
	}
	return !slices.EqualFunc(plain, patched, Flag.Same)
}

// HasMount reports whether a Pod has the mount m of another Pod, of, with the same host path.
func HasMount(pod, of *corev1.Pod, m corev1.VolumeMount) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(other corev1.VolumeMount) bool {
		return path.Clean(other.MountPath) == path.Clean(m.MountPath) && equality.Semantic.DeepEqual(hostPath(pod, other.Name), hostPath(of, m.Name))
	})
}

// hostPath returns a volume's path on the host; empty for other kinds.
func hostPath(pod *corev1.Pod, volume string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return path.Clean(v.HostPath.Path)
		}
	}
	return ""
}

// Within returns a function that reports whether a file is dir or in it.
func Within(dir string) func(string) bool {
	return func(file string) bool {
		rest, found := strings.CutPrefix(path.Clean(file), path.Clean(dir))
		return found && (rest == "" || rest[0] == '/')
	}
}

// mostFiles bounds the files that FilesOf finds.
const mostFiles = 100

// FilesOf returns the paths in a component's container that flags name, and the paths in those files in turn: an
// EncryptionConfiguration names sockets, an AdmissionConfiguration names kubeconfig files, and these name certificates.
func FilesOf(env *step.Env, pod *corev1.Pod, flags []Flag) []string {
	var files []string
	add := func(text string) {
		text = strings.TrimPrefix(text, "unix://")
		if path.IsAbs(text) && !slices.Contains(files, text) && len(files) < mostFiles {
			files = append(files, text)
		}
	}
	for _, f := range flags {
		add(f.Value)
	}
	for i := 0; i < len(files); i++ {
		at := inventory.OnHost(pod, files[i])
		if info, err := env.Host.Stat(at); err != nil || info.Mode().Type()&fs.ModeType != 0 || info.Size() > inventory.LargestFile {
			continue
		}
		data, err := env.Host.ReadFile(at)
		var document any
		if err == nil && yaml.Unmarshal(data, &document) == nil {
			eachText(document, add)
		}
	}
	return files
}

func eachText(value any, take func(string)) {
	switch v := value.(type) {
	case string:
		take(v)
	case []any:
		for _, item := range v {
			eachText(item, take)
		}
	case map[string]any:
		for _, item := range v {
			eachText(item, take)
		}
	}
}
