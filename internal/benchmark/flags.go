// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/manifests"
)

// flags are the command line of a component, each flag with its values in their order.
type flags map[string][]string

// flagsOf returns the component's flags. ok is false if they can't be known: the static Pod is missing or broken, or runs another
// program, such as a shell.
func (s *scene) flagsOf(component string) (f flags, ok bool) {
	pod := s.pods[component]
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return nil, false
	}
	c := pod.Spec.Containers[0]
	words := slices.Concat(c.Command, c.Args)
	if len(words) == 0 || path.Base(words[0]) != component {
		return nil, false
	}
	return parse(words[1:], component == manifests.EtcdName, c.Env), true
}

// parse reads flags as the components do: `_` is `-`, and a flag without a value is true. etcd also takes a single dash, and variables
// for flags that aren't given.
func parse(words []string, etcd bool, env []corev1.EnvVar) flags {
	f := flags{}
	for i, word := range words {
		flag, isFlag := strings.CutPrefix(word, "--")
		if !isFlag && etcd {
			flag, isFlag = strings.CutPrefix(word, "-")
		}
		if !isFlag {
			continue
		}
		name, value, given := strings.Cut(flag, "=")
		switch {
		case given:
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			value = words[i+1]
		default:
			value = "true"
		}
		name = strings.ReplaceAll(name, "_", "-")
		f[name] = append(f[name], value)
	}
	for _, e := range env {
		name, ofEtcd := strings.CutPrefix(e.Name, "ETCD_")
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if etcd && ofEtcd && f[name] == nil {
			f[name] = []string{e.Value}
		}
	}
	return f
}

// last is the value of a flag that has one; empty if it isn't set.
func (f flags) last(name string) string {
	if len(f[name]) == 0 {
		return ""
	}
	return f[name][len(f[name])-1]
}

// list is the value of a flag that adds up.
func (f flags) list(name string) []string {
	return slices.DeleteFunc(strings.Split(strings.Join(f[name], ","), ","), func(s string) bool { return s == "" })
}

// shown is a flag's value, or that it has none.
func (f flags) shown(name string) string {
	if f[name] == nil {
		return "not set"
	}
	return strings.Join(f[name], ",")
}

func isBool(text string, want bool) bool {
	got, err := strconv.ParseBool(text)
	return err == nil && got == want
}

func atLeast(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= least
}

// check looks at the flags of a component. hidden are flags that name a file with the settings instead: nobody has looked there.
func check(id, component, want string, names []string, ok func(flags) bool, hidden ...string) row {
	return row{id, component + " --" + strings.Join(names, " --"), want, func(s *scene) answer {
		f, known := s.flagsOf(component)
		if !known {
			return unknown("cannot read the command line in " + s.manifest(component))
		}
		for _, name := range hidden {
			if f[name] != nil {
				return unknown("--" + name + " names a file with such settings: " + f.last(name))
			}
		}
		var found []string
		for _, name := range names {
			found = append(found, f.shown(name))
		}
		return verdict(ok(f), strings.Join(found, "; "))
	}}
}

// set wants flags with any value.
func set(id, component string, names ...string) row {
	return check(id, component, "set", names, func(f flags) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return f.last(name) == "" })
	})
}

// is wants a truth value; unset counts as the component's default.
func is(id, component, name string, want, unset bool, hidden ...string) row {
	return check(id, component, strconv.FormatBool(want), []string{name}, func(f flags) bool {
		if f[name] == nil {
			return want == unset
		}
		return isBool(f.last(name), want)
	}, hidden...)
}
