// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/step"
)

// prepared records a preparation's changes that bear no mark, unlike files. An entry is made before its change, and keeps the
// state before the first change.
type prepared struct {
	// Prepared says that the following was noted.
	Prepared bool `json:"prepared"`
	// Parameters are kernel parameters' earlier values, by path below /proc/sys.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Swap are the areas that were in use.
	Swap []string `json:"swap,omitempty"`
	// Masked and Enabled are units that weren't before. UnitFiles are the enabled units' files by name: another may replace a file.
	Masked    []string          `json:"masked,omitempty"`
	Enabled   []string          `json:"enabled,omitempty"`
	UnitFiles map[string]string `json:"unitFiles,omitempty"`
	// Containerd says that a bundle brought it.
	Containerd bool `json:"containerd,omitempty"`
	// Directories were missing or empty before a daemon filled them.
	Directories []string `json:"directories,omitempty"`
	// Missing are directories that didn't exist. Marks aren't enough: a run may be killed between making and marking a directory.
	Missing []string `json:"missing,omitempty"`
	// Images are pinned in the runtime at Socket; Imported are the new images. ImageIDs are the imported images' IDs, by name:
	// somebody may give a name to another image.
	Socket   string              `json:"socket,omitempty"`
	Images   []string            `json:"images,omitempty"`
	Imported []string            `json:"imported,omitempty"`
	ImageIDs map[string][]string `json:"imageIDs,omitempty"`
}

// criSocket is the socket of the runtime with the images. Earlier releases didn't record it.
func (p prepared) criSocket() string { return cmp.Or(p.Socket, containerd.Socket) }

// runRecord notes the earlier state of everything a node changes without our mark, before the first change.
func (p *Prepare) runRecord(_ context.Context, env *step.Env) error {
	record, err := readPrepared(env.Host)
	if err != nil || record.Prepared {
		return err
	}
	vacant, err := vacantDirectories(env.Host)
	if err != nil {
		return err
	}
	wanted, err := wantedParameters(env.Host)
	if err != nil {
		return err
	}
	return p.note(env, func(r *prepared) {
		r.Prepared, r.Directories, r.Missing = true, vacant, missingDirectories(env.Host)
		for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(nodeParameters)), maps.Keys(wanted)) {
			if value, err := env.Host.ReadFile(host.ProcSys + name); err == nil {
				r.Parameters[name] = strings.TrimSpace(string(value))
			}
		}
	})
}

// nodeParameters are kernel parameters that kube-proxy and network plugins set, with their values; "" if a value depends on the
// machine or on kube-proxy's settings.
var nodeParameters = map[string]string{
	"net/ipv4/conf/all/route_localnet": "1", "net/ipv4/vs/conntrack": "1", "net/netfilter/nf_conntrack_max": "",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait": "", "net/netfilter/nf_conntrack_tcp_timeout_established": "",
}

// missingDirectories are missing here, and a preparation makes them for its files.
func missingDirectories(h host.Host) []string {
	dirs := append(runtimeDirectories(), programDir, cniDir)
	for _, path := range preparedFiles() {
		dirs = append(dirs, filepath.Dir(path))
	}
	var missing []string
	for _, dir := range dirs {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			if _, err := h.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				missing = with(missing, dir)
			}
		}
	}
	return missing
}

// vacantDirectories are directories that containerd, the kubelet and network plugins fill, if they're missing or empty.
func vacantDirectories(h host.Host) ([]string, error) {
	var vacant []string
	for _, dir := range append(containerd.Directories(), namespaceDir, "/var/log/containers", "/var/log/pods") {
		filled, err := isFilled(h, dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		if !filled {
			vacant = append(vacant, dir)
		}
	}
	return vacant, nil
}

// isFilled reports whether a directory has anything in it. A new file system is empty, too.
func isFilled(h host.Host, dir string) (bool, error) {
	entries, err := h.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != host.LostAndFound }), host.IgnoreMissing(err)
}

func readPrepared(h host.Host) (prepared, error) {
	p := prepared{Parameters: map[string]string{}, UnitFiles: map[string]string{}, ImageIDs: map[string][]string{}}
	data, err := host.ReadIfExists(h, thisnode.PreparedPath)
	if err != nil || data == nil {
		return p, err
	}
	return p, errors.Wrapf(json.Unmarshal(data, &p), "read %s", thisnode.PreparedPath)
}

// note changes the record. Phases run side by side.
func (p *Prepare) note(env *step.Env, change func(*prepared)) error {
	p.recording.Lock()
	defer p.recording.Unlock()
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	before, _ := json.MarshalIndent(record, "", "  ") // strings always encode
	change(&record)
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil || bytes.Equal(before, data) {
		return err
	}
	if err := ensureDir(env, filepath.Dir(thisnode.PreparedPath)); err != nil {
		return err
	}
	_, err = env.Host.WriteFile(thisnode.PreparedPath, append(data, '\n'), 0o644)
	return err
}

// with is a sorted list of all elements, each once.
func with(list []string, more ...string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, more))))
}

func without(list []string, less ...string) []string {
	return slices.DeleteFunc(list, func(e string) bool { return slices.Contains(less, e) })
}

// noteContainerd records that a bundle brings containerd, before its files are put in place. From then on, its directories are
// its own, except any that somebody else's containerd has filled since the host was prepared.
func (p *Prepare) noteContainerd(env *step.Env) error {
	brought, err := broughtContainerd(env)
	if err != nil {
		return err
	}
	vacant, err := vacantDirectories(env.Host)
	if err != nil {
		return err
	}
	return p.note(env, func(r *prepared) {
		r.Containerd = true
		if !brought {
			r.Directories = without(r.Directories, without(containerd.Directories(), vacant...)...)
		}
	})
}

// unitState is a unit's state. A host without systemd has no units: the check Systemd reports it, and a plan goes on.
func unitState(ctx context.Context, env *step.Env, name string) (host.UnitState, error) {
	state, err := env.Host.Unit(ctx, name)
	if errors.Is(err, host.ErrNoSystemd) {
		return host.UnitState{LoadState: "not-found"}, nil
	}
	return state, err
}

// enable enables a unit, and records it if it wasn't enabled.
func (p *Prepare) enable(ctx context.Context, env *step.Env, unit string) error {
	state, err := unitState(ctx, env, unit)
	if err != nil || state.UnitFileState == "enabled" {
		return err
	}
	err = p.note(env, func(r *prepared) {
		r.Enabled = with(r.Enabled, unit)
		r.UnitFiles[unit] = state.Fragment
	})
	if err != nil {
		return err
	}
	env.UI.Printf("Enabling %s", unit)
	return env.Host.OrderUnit(ctx, host.EnableUnit, unit)
}
