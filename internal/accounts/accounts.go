// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package accounts manages the users and groups of a rootless control plane, in /etc/passwd and /etc/group. Rootless is the
// entry point: Ensure adds accounts, Give hands a component its files, RemoveUsers and RemoveGroups undo that.
// docs/design/rootless-files.md has the reasons.
package accounts

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// RemoveUsers recognizes a user nobody has changed by this home directory and shell.
const (
	noHome  = "/nonexistent"
	noShell = "/bin/false"
)

// Rootless manages the accounts of a rootless control plane. Without the feature gate, Ensure and Give do nothing.
type Rootless struct {
	Host   host.Host
	Config *config.Node
	UI     ui.UI
}

// Ensure adds the users and groups that the host lacks.
func (r Rootless) Ensure() error {
	if !manifests.Rootless(r.Config) {
		return nil
	}
	groups, users, err := r.wanted()
	if err != nil || !groups.changed && !users.changed {
		return err
	}
	release, err := r.Host.LockAccounts()
	if err != nil {
		return err
	}
	defer release()
	// Another program may have changed the files before they were locked.
	if groups, users, err = r.wanted(); err != nil {
		return err
	}
	// Groups come first: a user without its group is broken.
	if err := r.write(groups); err != nil {
		return err
	}
	return r.write(users)
}

func (r Rootless) write(f *file) error {
	changed, err := r.Host.WriteFile(f.path, []byte(f.text), f.mode)
	if changed {
		r.UI.Printf("Adding the accounts of a rootless control plane to %s", f.path)
	}
	return err
}

// Numbers returns the accounts' numbers, or those they'll get if the files don't change until Ensure; nil without the gate.
func (r Rootless) Numbers() (*manifests.Users, error) {
	if !manifests.Rootless(r.Config) {
		return nil, nil
	}
	groups, users, err := r.wanted()
	if err != nil {
		return nil, err
	}
	numbers := &manifests.Users{Accounts: map[string]manifests.Account{}, ServiceAccountKeyGID: int64(groups.ids[manifests.ServiceAccountKeyGroup])}
	for _, name := range manifests.RootlessUsers() {
		numbers.Accounts[name] = manifests.Account{UID: int64(users.ids[name]), GID: int64(groups.ids[name])}
	}
	return numbers, nil
}

func (r Rootless) wanted() (groups, users *file, err error) {
	if groups, err = read(r.Host, GroupFile); err != nil {
		return nil, nil, err
	}
	if users, err = read(r.Host, PasswdFile); err != nil {
		return nil, nil, err
	}
	return groups, users, add(groups, users)
}

func add(groups, users *file) error {
	for _, name := range append(manifests.RootlessUsers(), manifests.ServiceAccountKeyGroup) {
		members := name // kubeadm lists each user in its own group
		if name == manifests.ServiceAccountKeyGroup {
			members = manifests.APIServerUser + "," + manifests.ControllerManagerUser
		}
		if err := groups.add(name, func(id int) string { return fmt.Sprintf("%s:x:%d:%s", name, id, members) }); err != nil {
			return err
		}
	}
	for _, name := range manifests.RootlessUsers() {
		gid := groups.ids[name]
		err := users.add(name, func(id int) string {
			return fmt.Sprintf("%s:x:%d:%d::%s:%s", name, id, gid, noHome, noShell)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Give gives a component the files it must read. It skips missing ones, such as an external CA's key or a skipped phase's files.
func (r Rootless) Give(component string) error {
	if !manifests.Rootless(r.Config) {
		return nil
	}
	groups, users, err := r.wanted()
	if err != nil {
		return err
	}
	for _, o := range manifests.Ownerships(r.Config) {
		if !slices.Contains(o.Components, component) {
			continue
		}
		owner := host.Owner{UID: users.ids[o.User], GID: groups.ids[o.Group]}
		if err := r.give(o, owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r Rootless) give(o manifests.Ownership, owner host.Owner) error {
	if !o.Tree {
		return r.Host.SetOwner(o.Path, owner, o.Mode)
	}
	kept, err := r.Host.SetTreeOwner(o.Path, owner)
	if len(kept) > 0 {
		r.UI.Warnf("%s: neither regular files nor directories of the same mount, so they keep their owner; "+
			"if %s needs the files they point to, make user %s their owner", strings.Join(kept, ", "), strings.Join(o.Components, ", "), o.User)
	}
	return err
}

// RemoveUsers removes the users nobody has changed. It comes before RemoveGroups: a user without its group is broken.
func (r Rootless) RemoveUsers() (changed bool, err error) {
	return r.removeLines(PasswdFile, func(f []string) bool {
		return len(f) == 7 && slices.Contains(manifests.RootlessUsers(), f[0]) && f[5] == noHome && f[6] == noShell
	})
}

// RemoveGroups removes the groups, but not the primary group of a user that stays.
func (r Rootless) RemoveGroups() (changed bool, err error) {
	return r.removeLines(GroupFile, func(f []string) bool {
		return len(f) == 4 && slices.Contains(append(manifests.RootlessUsers(), manifests.ServiceAccountKeyGroup), f[0]) && !r.isPrimary(f[2])
	})
}

// isPrimary reports whether a group's number is any user's primary group, as far as the users can be read.
func (r Rootless) isPrimary(gid string) bool {
	users, err := host.ReadIfExists(r.Host, PasswdFile)
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(users)) {
		if f := strings.Split(line, ":"); len(f) == 7 && f[3] == gid {
			return true
		}
	}
	return false
}

func (r Rootless) removeLines(path string, ours func(fields []string) bool) (changed bool, err error) {
	info, err := r.Host.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	text, kept, err := r.linesWithout(path, ours)
	if err != nil || kept == text {
		return false, err
	}
	release, err := r.Host.LockAccounts()
	if err != nil {
		return false, err
	}
	defer release()
	// Another program may have changed the file before it was locked.
	if _, kept, err = r.linesWithout(path, ours); err != nil {
		return false, err
	}
	if changed, err = r.Host.WriteFile(path, []byte(kept), info.Mode().Perm()); changed {
		r.UI.Printf("Removed the accounts of a rootless control plane from %s", path)
	}
	return changed, err
}

func (r Rootless) linesWithout(path string, ours func(fields []string) bool) (text, kept string, err error) {
	data, err := r.Host.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !ours(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
			b.WriteString(line)
		}
	}
	return string(data), b.String(), nil
}
