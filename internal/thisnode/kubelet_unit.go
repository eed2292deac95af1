// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// administratorsEnv are the environment files of the packages' units, which belong to the host's administrators.
func administratorsEnv() []string { return []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"} }

// AdministratorsFlags returns the flags in administrators' own files, such as KUBELET_EXTRA_ARGS in /etc/default/kubelet, in the
// order in which systemd reads them: the kubelet's unit, its drop-ins, then two environment files.
func AdministratorsFlags(h host.Reader) []KubeletFlag {
	var flags []KubeletFlag
	for _, s := range unitSettings(h) {
		switch s.name {
		case "ExecStart":
			flags = append(flags, flagsFrom(flagsIn([]byte(afterKubelet(s.value))), s.file)...)
		case "Environment":
			flags = append(flags, flagsFrom(flagsIn([]byte(s.value)), s.file)...)
		}
	}
	for _, path := range administratorsEnv() {
		if text, err := h.ReadFile(path); err == nil {
			flags = append(flags, flagsFrom(flagsIn(text), path)...)
		}
	}
	return flags
}

// afterKubelet returns a command line without the flags of a wrapper before the kubelet's path, such as numactl's.
func afterKubelet(command string) string {
	list := words(command)
	at := slices.IndexFunc(list, func(w string) bool { return filepath.Base(w) == "kubelet" && !strings.HasPrefix(w, "--") })
	return strings.Join(list[at+1:], " ")
}

// UnseenFlags says why the kubelet may have flags that EffectiveFlags doesn't know: its unit names another environment file, or a
// variable that no file sets. It's empty if nothing hides flags.
func UnseenFlags(h host.Reader, m *config.Machine) string {
	if _, err := UnitFiles(h); err != nil {
		return err.Error()
	}
	known := append(administratorsEnv(), filepath.Join(m.Paths.Kubelet, kubeadmFlags))
	set := map[string]bool{"KUBELET_KUBEADM_ARGS": true, "KUBELET_EXTRA_ARGS": true} // in files that needn't exist
	var used []unitSetting
	for _, s := range unitSettings(h) {
		switch s.name {
		case "EnvironmentFile":
			if path := strings.TrimPrefix(s.value, "-"); !slices.Contains(known, path) {
				return s.file + " names another file with flags: " + path
			}
		case "Environment":
			assigned(set, s.value)
		case "ExecStart":
			used = append(used, s)
		}
	}
	for _, path := range known {
		text, _ := h.ReadFile(path)
		for _, line := range unitLines(text) { // systemd.exec(5): these files have the same comments
			assigned(set, line)
		}
	}
	for _, s := range used {
		for _, name := range variables(s.value) {
			if !set[name] {
				return "ExecStart in " + s.file + " has a variable that no file sets: $" + name
			}
		}
	}
	return ""
}

// unitSetting is a line NAME=VALUE of a unit's file.
type unitSetting struct{ name, value, file string }

// unitSettings returns the lines of the kubelet's unit that count, in order. An empty value drops the name's lines before it.
func unitSettings(h host.Reader) []unitSetting {
	var list []unitSetting
	files, _ := UnitFiles(h) // UnseenFlags looks at the error
	for _, path := range files {
		text, _ := h.ReadFile(path) // a user who isn't root sees less
		for _, line := range unitLines(text) {
			name, value, _ := strings.Cut(line, "=")
			s := unitSetting{strings.TrimSpace(name), strings.TrimSpace(value), path}
			if s.value == "" {
				list = slices.DeleteFunc(list, func(old unitSetting) bool { return old.name == s.name })
				continue
			}
			list = append(list, s)
		}
	}
	return list
}

// UnitFiles lists the kubelet's unit and its drop-ins as systemd reads them: drop-ins by their names, whatever their directories. A
// file hides files of its name in later directories, and does so as a link to /dev/null, too: systemd.unit(5). If a directory can't
// be read, it returns the other files with an error.
func UnitFiles(h host.Reader) (files []string, err error) {
	dropIns := map[string]string{} // by name
	for _, dir := range host.UnitDirs() {
		unit := filepath.Join(dir, host.KubeletUnit)
		if _, err := h.Lstat(unit); err == nil && len(files) == 0 {
			files = append(files, unit)
		}
		entries, failed := h.ReadDir(unit + ".d")
		err = cmp.Or(err, host.IgnoreMissing(failed)) // few of them exist
		for _, e := range entries {
			if name := e.Name(); !e.IsDir() && filepath.Ext(name) == ".conf" {
				dropIns[name] = cmp.Or(dropIns[name], filepath.Join(unit+".d", name))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		files = append(files, dropIns[name])
	}
	return files, err
}

// unitLines returns the lines of a unit's file without comments. A backslash continues a line, even across comments.
func unitLines(text []byte) []string {
	var lines []string
	begun := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if part, more := strings.CutSuffix(line, `\`); more {
			begun += part + " "
			continue
		}
		lines, begun = append(lines, begun+line), ""
	}
	return append(lines, begun)
}

// assigned adds the names of the variables in a value of Environment=, or in a line of an environment file.
func assigned(names map[string]bool, text string) {
	for _, word := range words(text) {
		if name, _, given := strings.Cut(word, "="); given {
			names[name] = true
		}
	}
}

// variables returns the names of the variables in a command line: $NAME or ${NAME}. $$ is a dollar sign.
func variables(command string) []string {
	var names []string
	_, rest, _ := strings.Cut(strings.ReplaceAll(command, "$$", ""), "$")
	for part := range strings.SplitSeq(rest, "$") {
		part = strings.TrimPrefix(part, "{")
		end := strings.IndexFunc(part, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
		if end < 0 {
			end = len(part)
		}
		if end > 0 {
			names = append(names, part[:end])
		}
	}
	return names
}

func words(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'", r) })
}
