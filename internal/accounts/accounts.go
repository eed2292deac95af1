// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package accounts manages a rootless control plane's users and groups on this host, and gives them the files they need.
package accounts

import (
	"fmt"
	"slices"

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

func isUser(fields []string) bool {
	return len(fields) == 7 && slices.Contains(manifests.RootlessUsers(), fields[0]) && fields[5] == noHome && fields[6] == noShell
}

func isGroup(fields []string) bool {
	return len(fields) == 4 && slices.Contains(append(manifests.RootlessUsers(), manifests.ServiceAccountKeyGroup), fields[0])
}
