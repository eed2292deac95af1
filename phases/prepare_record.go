// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// preparedPath is where a host keeps the record of its preparation.
const preparedPath = "/var/lib/slipway/host.json"

// prepared records what a preparation changes that has no mark of its own, as files have. An entry is made before the
// change, and keeps what was there before the first one.
type prepared struct {
	// Parameters are the earlier values of kernel parameters, by path below /proc/sys.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Swap are areas that were in use.
	Swap []string `json:"swap,omitempty"`
	// Masked and Enabled are units that were not.
	Masked  []string `json:"masked,omitempty"`
	Enabled []string `json:"enabled,omitempty"`
	// Directories are those that were missing or empty before a daemon filled them.
	Directories []string `json:"directories,omitempty"`
	// Images are pinned, and Imported are those of them that were not there.
	Images   []string `json:"images,omitempty"`
	Imported []string `json:"imported,omitempty"`
}

func readPrepared(h host.Host) (prepared, error) {
	var p prepared
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
	return changePrepared(env, change)
}

func changePrepared(env *Env, change func(*prepared)) error {
	before, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	after := before.clone()
	change(&after)
	if reflect.DeepEqual(before, after) {
		return nil
	}
	if reflect.DeepEqual(after, prepared{}) {
		return env.Host.Remove(preparedPath)
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
		maps.Clone(p.Parameters), slices.Clone(p.Swap), slices.Clone(p.Masked), slices.Clone(p.Enabled),
		slices.Clone(p.Directories), slices.Clone(p.Images), slices.Clone(p.Imported),
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

// enable enables a unit, and records that if it was not.
func (p *Prepare) enable(ctx context.Context, env *Env, unit string) error {
	state, err := env.Host.Unit(ctx, unit)
	if err != nil || state.UnitFileState == "enabled" {
		return err
	}
	if err := p.note(env, func(r *prepared) { include(&r.Enabled, unit) }); err != nil {
		return err
	}
	env.UI.Printf("Enabling %s", unit)
	return env.Host.EnableUnit(ctx, unit)
}
