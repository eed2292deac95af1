// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

func TestFlagsEnv(t *testing.T) {
	arg := func(name, value string) config.Arg { return config.Arg{Name: name, Value: value} }
	for _, tt := range []struct {
		name string
		node config.Node
		want string
	}{
		{"name of the host", config.Node{Name: "a", Hostname: "a"}, ``},
		{"another name", config.Node{Name: "a", Hostname: "b"}, `--hostname-override=a`},
		{"extra arguments keep their order and repeat",
			config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("v", "4"), arg("node-labels", "a=b,c=d"), arg("v", "5"), arg("empty", "")}}},
			`--v=4 --node-labels=a=b,c=d --v=5 --empty=`},
		{"an extra argument replaces",
			config.Node{Name: "a", Hostname: "b", Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("hostname-override", "c")}}},
			`--hostname-override=c`},
		{"an extra argument with an underscore replaces",
			config.Node{Name: "a", Hostname: "b", Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("hostname_override", "c")}}},
			`--hostname_override=c`},
		{"a worker's taints",
			config.Node{Taints: []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}}},
			`--register-with-taints=a=b:NoSchedule,c:NoExecute`},
		{"a control plane's taints are set through the API",
			config.Node{ControlPlane: true, Taints: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}}, ``},
		{"neither dollar nor percent is special", config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("a", "$b %n ;")}}}, `\"--a=$b %n ;\"`},
		{"space", config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("a", "x y"), arg("b", "z")}}}, `\"--a=x y\" --b=z`},
		{"double quote", config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("a", `x"y`)}}}, `\"--a=x\\\"y\"`},
		{"backslash", config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{arg("a", `x\y`)}}}, `\"--a=x\\\\y\"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := FlagsEnv(&tt.node)
			if err != nil {
				t.Fatal(err)
			}
			want := `KUBELET_KUBEADM_ARGS="` + tt.want + "\"\n"
			if diff := cmp.Diff(want, string(data)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(Flags(&tt.node), asSystemd(t, string(data))); diff != "" {
				t.Errorf("what the kubelet gets:\n%s", diff)
			}
		})
	}
}

func TestFlagsEnvRefuses(t *testing.T) {
	for _, value := range []string{"a\nb", "a\rb", "a\tb", "a\x00b", "a\x7fb", "a\xffb"} {
		n := config.Node{Machine: config.Machine{KubeletExtraArgs: []config.Arg{{Name: "node-labels", Value: value}}}}
		_, err := FlagsEnv(&n)
		fact.Error(t, err, "nodeRegistration.kubeletExtraArgs:", `"--node-labels"`, "control character", "systemd")
	}
}

func FuzzFlagsEnv(f *testing.F) {
	f.Add("a", "b")
	f.Add("node-labels", `x='y' "z" \ $(rm) %i ;#`)
	f.Add("", "\\")
	f.Add("a b", `\"`)
	f.Add("a", "x\u00a0y")
	f.Fuzz(func(t *testing.T, name, value string) {
		n := config.Node{Name: "a", Hostname: "b", Machine: config.Machine{KubeletExtraArgs: []config.Arg{{Name: name, Value: value}, {Name: "last", Value: "1"}}}}
		data, err := FlagsEnv(&n)
		if err != nil {
			return
		}
		if diff := cmp.Diff(Flags(&n), asSystemd(t, string(data))); diff != "" {
			t.Errorf("%q:\n%s", data, diff)
		}
	})
}

// asSystemd reads an EnvironmentFile and splits the variable the way systemd does for a unit with `ExecStart=/usr/bin/kubelet
// $KUBELET_KUBEADM_ARGS`.
func asSystemd(t *testing.T, file string) []string {
	t.Helper()
	value, found := environmentFile(t, file)["KUBELET_KUBEADM_ARGS"]
	if !found {
		t.Fatalf("no variable in %q", file)
	}
	return splitWords(value)
}

// environmentFile follows systemd.exec(5): lines NAME=VALUE; in a double-quoted value, a backslash escapes any of "\`$ and is
// literal otherwise; a line that begins with # or ; is a comment.
func environmentFile(t *testing.T, file string) map[string]string {
	out := map[string]string{}
	rest := file
	for rest != "" {
		if rest[0] == '#' || rest[0] == ';' || rest[0] == '\n' {
			_, rest, _ = strings.Cut(rest, "\n")
			continue
		}
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			t.Fatalf("no variable in %q", rest)
		}
		var value strings.Builder
		quoted := false
		i := 0
		for ; i < len(after) && (quoted || after[i] != '\n'); i++ {
			switch c := after[i]; {
			case c == '"':
				quoted = !quoted
			case c == '\\' && quoted && i+1 < len(after) && strings.IndexByte("\"\\`$", after[i+1]) >= 0:
				i++
				value.WriteByte(after[i])
			default:
				value.WriteByte(c)
			}
		}
		if quoted {
			t.Fatalf("no closing quote in %q", file)
		}
		out[name] = value.String()
		rest = strings.TrimPrefix(after[i:], "\n")
	}
	return out
}

// splitWords follows systemd.service(5), "Command lines", for a variable that's a word of its own: words end at white space,
// quotes of both kinds are removed, and a backslash escapes the next character, inside quotes as well.
func splitWords(value string) []string {
	var words []string
	var word strings.Builder
	quote, inWord := byte(0), false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '\\' && i+1 < len(value):
			i++
			word.WriteByte(value[i])
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case strings.IndexByte(" \t\n\r", c) >= 0:
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}
