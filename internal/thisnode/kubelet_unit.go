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
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// administratorsEnv are the environment files of the packages' units, which belong to the host's administrators.
func administratorsEnv() []string { return []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"} }

// AdministratorsFlags returns the flags in administrators' own files, such as KUBELET_EXTRA_ARGS in /etc/default/kubelet, in the
// order in which systemd reads them: the kubelet's unit, its drop-ins, then the environment files. Of several assignments of a
// variable, even empty ones, only the last counts: systemd.exec(5).
func AdministratorsFlags(h host.Reader) []KubeletFlag {
	var flags []KubeletFlag
	var files []string
	for _, s := range unitSettings(h) {
		switch s.name {
		case "ExecStart":
			list := words(s.value)
			command := strings.Join(list[kubeletIn(list)+1:], " ")
			flags = append(flags, flagsFrom(flagsIn([]byte(command)), s.file)...)
		case "Environment":
			flags = assign(flags, assignments().FindAllString(s.value, -1), s.file)
		case "EnvironmentFile":
			if path := strings.TrimPrefix(s.value, "-"); slices.Contains(administratorsEnv(), path) {
				files = append(files, path)
			}
		}
	}
	if len(files) == 0 { // the unit isn't installed yet
		files = administratorsEnv()
	}
	for _, path := range files {
		if text, err := h.ReadFile(path); err == nil {
			flags = assign(flags, unitLines(text), path)
		}
	}
	return flags
}

// assignments finds the parts of a value of Environment=, each with its quotes.
var assignments = lazyregexp.New(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)

// assign adds the flags in a file's assignments. Each assignment replaces the variable's former flags; a part without a name continues
// the value before it.
func assign(flags []KubeletFlag, parts []string, file string) []KubeletFlag {
	variable := ""
	for _, part := range parts {
		name, _, given := strings.Cut(strings.TrimLeft(part, `"'`), "=")
		if name = strings.TrimSpace(name); given && name != "" && strings.IndexFunc(name, endsName) < 0 {
			variable = name
			flags = slices.DeleteFunc(flags, func(f KubeletFlag) bool { return f.variable == name })
		}
		for _, f := range flagsFrom(flagsIn([]byte(part)), file) {
			f.variable = variable
			flags = append(flags, f)
		}
	}
	return flags
}

// KubeletProgram returns the path of the kubelet that the unit starts, perhaps by a wrapper such as numactl, and the file whose
// ExecStart counts. The path is empty if ExecStart doesn't have it. Both are empty if there's no unit, or the file can't be read.
func KubeletProgram(h host.Reader) (path, file string) {
	for _, s := range unitSettings(h) {
		if s.name != "ExecStart" {
			continue
		}
		path, file = "", ""
		if list := words(s.value); len(list) > 0 {
			file = s.file
			if at := kubeletIn(list); at >= 0 {
				path = strings.TrimLeft(list[at], "@-:+!|") // systemd.service(5)
			}
		}
	}
	return path, file
}

// kubeletIn returns the index of the kubelet in a command, behind a wrapper's words; -1 if it isn't there.
func kubeletIn(command []string) int {
	return slices.IndexFunc(command, func(w string) bool { return filepath.Base(w) == "kubelet" && !strings.HasPrefix(w, "--") })
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

// unitSettings returns the lines of the kubelet's unit that count, in order. An empty value drops the name's lines before it. A file
// that can't be read, by a user who isn't root or in a plan, may have a command: it gets an empty one.
func unitSettings(h host.Reader) []unitSetting {
	var list []unitSetting
	files, _ := UnitFiles(h) // UnseenFlags looks at the error
	for _, path := range files {
		text, err := h.ReadFile(path)
		if host.IgnoreMissing(err) != nil {
			list = append(list, unitSetting{"ExecStart", "", path})
		}
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
		end := strings.IndexFunc(part, endsName)
		if end < 0 {
			end = len(part)
		}
		if end > 0 {
			names = append(names, part[:end])
		}
	}
	return names
}

// endsName reports whether a character can't be in a variable's name.
func endsName(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

func words(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'", r) })
}
