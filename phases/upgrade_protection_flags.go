// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/inventory"
)

// flag is a flag of a command line. It has a second word where the value stands apart.
type flag struct {
	name, value string
	words       []string
}

func (f flag) same(other flag) bool { return f.name == other.name && f.value == other.value }

// movedTo reports whether another one names the same file in another directory, as after a change of certificatesDir.
func (f flag) movedTo(other flag) bool {
	return f.name == other.name && path.IsAbs(f.value) && path.IsAbs(other.value) && path.Base(f.value) == path.Base(other.value)
}

// shortened reports whether the other flags of its name have only a part of a list of guards.
func (f flag) shortened(others []flag) bool {
	if len(others) == 0 || !slices.Contains([]string{"authorization-mode", "enable-admission-plugins"}, f.name) {
		return false
	}
	var left []string
	for _, other := range others {
		left = append(left, strings.Split(other.value, ",")...)
	}
	return slices.ContainsFunc(strings.Split(f.value, ","), func(guard string) bool { return !slices.Contains(left, guard) })
}

// begins is the one of some texts that the name begins with; empty for none.
func (f flag) begins(texts iter.Seq[string]) string {
	for text := range texts {
		if strings.HasPrefix(f.name, text) {
			return text
		}
	}
	return ""
}

// flagsOf reads them as the programs do: with one or two dashes, and underscores for dashes.
func flagsOf(words []string) []flag {
	var list []flag
	for i, word := range words {
		name, value, joined := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		f := flag{strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-"), value, words[i : i+1]}
		switch {
		case joined:
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			f.value, f.words = words[i+1], words[i:i+2]
		default:
			f.value = "true"
		}
		list = append(list, f)
	}
	return list
}

// podFlags are those of a static Pod's component.
func podFlags(pod *corev1.Pod) []flag {
	c := &pod.Spec.Containers[0]
	return flagsOf(slices.Concat(c.Command, c.Args))
}

func flagsNamed(flags []flag, name string) []flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f flag) bool { return f.name != name })
}

// replaced reports whether patches have made other flags of one name. Those that may be given several times all count, so one
// more says nothing of the others.
func replaced(plain, patched []flag) bool {
	repeats := []string{"oidc-required-claim", "service-account-issuer", "service-account-key-file", "tls-sni-cert-key"}
	if len(plain) > 0 && slices.Contains(repeats, plain[0].name) {
		return slices.ContainsFunc(plain, func(f flag) bool { return !slices.ContainsFunc(patched, f.same) })
	}
	return !slices.EqualFunc(plain, patched, flag.same)
}

// hasMount reports whether a Pod mounts the same as another one, of, does by m.
func hasMount(pod, of *corev1.Pod, m corev1.VolumeMount) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(other corev1.VolumeMount) bool {
		return path.Clean(other.MountPath) == path.Clean(m.MountPath) && equality.Semantic.DeepEqual(hostPath(pod, other.Name), hostPath(of, m.Name))
	})
}

// hostPath is the path of a volume on the host; empty if it's of another kind.
func hostPath(pod *corev1.Pod, volume string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return path.Clean(v.HostPath.Path)
		}
	}
	return ""
}

// within returns a function that reports whether a file is in a directory, or is it.
func within(dir string) func(string) bool {
	return func(file string) bool {
		rest, found := strings.CutPrefix(path.Clean(file), path.Clean(dir))
		return found && (rest == "" || rest[0] == '/')
	}
}

// mostFiles bounds how many files are read in search of others.
const mostFiles = 100

// filesOf are the paths in a component's container that flags name, and those that these files name in turn: an
// EncryptionConfiguration has sockets, an AdmissionConfiguration has kubeconfig files, and these have certificates.
func filesOf(env *Env, pod *corev1.Pod, flags []flag) []string {
	var files []string
	add := func(text string) {
		text = strings.TrimPrefix(text, "unix://")
		if path.IsAbs(text) && !slices.Contains(files, text) && len(files) < mostFiles {
			files = append(files, text)
		}
	}
	for _, f := range flags {
		add(f.value)
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

// eachText calls take with each text in a YAML document.
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
