// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
)

// preparedPath is where a host keeps the record of its preparation.
const preparedPath = "/var/lib/slipway/host.json"

// prepared records what a preparation changes that has no mark of its own, as files have. An entry is made before the
// change, and keeps what was there before the first one.
type prepared struct {
	// Prepared says that what follows was noted.
	Prepared bool `json:"prepared"`
	// EmptyTables are tables of nftables that were there and did nothing.
	EmptyTables []string `json:"emptyTables,omitempty"`
	// Parameters are the earlier values of kernel parameters, by path below /proc/sys.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Swap are areas that were in use.
	Swap []string `json:"swap,omitempty"`
	// Masked and Enabled are units that were not.
	Masked  []string `json:"masked,omitempty"`
	Enabled []string `json:"enabled,omitempty"`
	// Directories are those that were missing or empty before a daemon filled them.
	Directories []string `json:"directories,omitempty"`
	// Missing are directories that were not there. The mark on a directory does not do, because a run may be killed
	// between making and marking it.
	Missing []string `json:"missing,omitempty"`
	// Images are pinned, and Imported are those of them that were not there.
	Images   []string `json:"images,omitempty"`
	Imported []string `json:"imported,omitempty"`
}

func (p *Prepare) record() Phase {
	return Phase{
		Name:    "record",
		Summary: "Note what is there before, so that host reset can restore it",
		Flags:   prepareFlags(),
		Run:     p.runRecord,
	}
}

// runRecord notes what a node changes that does not bear a mark of ours, before the first change.
func (p *Prepare) runRecord(_ context.Context, env *Env) error {
	record, err := readPrepared(env.Host)
	if err != nil || record.Prepared {
		return err
	}
	tables, err := env.Host.EmptyTables()
	if err != nil && !errors.Is(err, fs.ErrPermission) { // a plan of another user
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
		for _, t := range tables {
			r.EmptyTables = append(r.EmptyTables, t.Name)
		}
		for _, name := range slices.AppendSeq(slices.Clone(nodeParameters), maps.Keys(wanted)) {
			if value, err := env.Host.ReadFile(host.ProcSys + name); err == nil {
				r.Parameters[name] = strings.TrimSpace(string(value))
			}
		}
	})
}

// nodeParameters are kernel parameters that the kubelet, kube-proxy and network plugins set.
var nodeParameters = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
	"net/ipv4/conf/all/route_localnet", "net/ipv4/vs/conntrack", "net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_tcp_timeout_close_wait", "net/netfilter/nf_conntrack_tcp_timeout_established",
	"vm/overcommit_memory", "vm/panic_on_oom",
}

// missingDirectories are those that a preparation makes for its files and that are not there.
func missingDirectories(h host.Host) []string {
	dirs := append(runtimeDirectories(), programDir, cniDir)
	for _, path := range preparedFiles() {
		dirs = append(dirs, filepath.Dir(path))
	}
	var missing []string
	for _, dir := range dirs {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			if _, err := h.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				include(&missing, dir)
			}
		}
	}
	return missing
}

// vacantDirectories are those that are missing or empty, of the ones that containerd, the kubelet and network plugins
// make and fill.
func vacantDirectories(h host.Host) ([]string, error) {
	var vacant []string
	for _, dir := range append(containerd.Directories(), namespaceDir, "/var/log/containers", "/var/log/pods") {
		entries, err := h.ReadDir(dir)
		if err := ignoreMissing(err); err != nil && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		if len(entries) == 0 {
			vacant = append(vacant, dir)
		}
	}
	return vacant, nil
}

func readPrepared(h host.Host) (prepared, error) {
	p := prepared{Parameters: map[string]string{}}
	data, err := host.ReadIfExists(h, preparedPath)
	if err != nil || data == nil {
		return p, err
	}
	return p, errors.Wrapf(json.Unmarshal(data, &p), "read %s", preparedPath)
}

// note changes the record. Phases run side by side.
func (p *Prepare) note(env *Env, change func(*prepared)) error {
	p.recording.Lock()
	defer p.recording.Unlock()
	before, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	after := before.clone()
	change(&after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	data, err := json.MarshalIndent(after, "", "  ")
	if err != nil {
		return err
	}
	if err := env.Host.EnsureDir(filepath.Dir(preparedPath), 0o755); err != nil {
		return err
	}
	_, err = env.Host.WriteFile(preparedPath, append(data, '\n'), 0o644)
	return err
}

func (p prepared) clone() prepared {
	return prepared{
		p.Prepared, slices.Clone(p.EmptyTables), maps.Clone(p.Parameters), slices.Clone(p.Swap), slices.Clone(p.Masked), slices.Clone(p.Enabled),
		slices.Clone(p.Directories), slices.Clone(p.Missing), slices.Clone(p.Images), slices.Clone(p.Imported),
	}
}

// exclude takes an element out of a list, which is nil when it is empty.
func exclude(list *[]string, element string) {
	if *list = slices.DeleteFunc(*list, func(e string) bool { return e == element }); len(*list) == 0 {
		*list = nil
	}
}

// include adds what is not in a sorted list yet.
func include(list *[]string, more ...string) {
	*list = slices.Compact(slices.Sorted(slices.Values(slices.Concat(*list, more))))
}

// unitState is a unit's state. A host without systemd has no units: the check Systemd says so, and a plan goes on.
func unitState(ctx context.Context, env *Env, name string) (host.UnitState, error) {
	state, err := env.Host.Unit(ctx, name)
	if errors.Is(err, host.ErrNoSystemd) {
		return host.UnitState{LoadState: "not-found"}, nil
	}
	return state, err
}

// enable enables a unit, and records that if it was not.
func (p *Prepare) enable(ctx context.Context, env *Env, unit string) error {
	state, err := unitState(ctx, env, unit)
	if err != nil || state.UnitFileState == "enabled" {
		return err
	}
	if err := p.note(env, func(r *prepared) { include(&r.Enabled, unit) }); err != nil {
		return err
	}
	env.UI.Printf("Enabling %s", unit)
	return env.Host.EnableUnit(ctx, unit)
}
