// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
)

// The accounts' files, in the formats of passwd(5) and group(5).
const (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// Numbers that distributions give to system accounts (SYS_UID_MIN and
// SYS_UID_MAX of login.defs(5)).
const (
	minSystemID = 100
	maxSystemID = 999
)

// rootlessUsers are the accounts that the components of a rootless control
// plane run as, each with a group of its own name.
var rootlessUsers = []string{
	manifests.EtcdUser, manifests.APIServerUser, manifests.ControllerManagerUser, manifests.SchedulerUser,
}

// ensureAccounts makes the users and groups of a rootless control plane that
// the host lacks. Without the feature gate there is nothing to make.
func ensureAccounts(env *Env) error {
	if !manifests.Rootless(env.Config) {
		return nil
	}
	groups, users, err := wantedAccounts(env)
	if err != nil || !groups.changed && !users.changed {
		return err
	}
	release, err := env.Host.LockAccounts()
	if err != nil {
		return err
	}
	defer release()
	// Read once more: another program may have changed them before the lock.
	if groups, users, err = wantedAccounts(env); err != nil {
		return err
	}
	// Groups come first: a user whose group is missing is broken.
	if err := groups.write(env); err != nil {
		return err
	}
	return users.write(env)
}

// rootlessNumbers returns the numbers that the accounts have or, as long as
// nobody changes the files, will have. It is nil without the feature gate.
func rootlessNumbers(env *Env) (*manifests.Users, error) {
	if !manifests.Rootless(env.Config) {
		return nil, nil
	}
	groups, users, err := wantedAccounts(env)
	if err != nil {
		return nil, err
	}
	account := func(name string) manifests.Account {
		return manifests.Account{UID: int64(users.ids[name]), GID: int64(groups.ids[name])}
	}
	return &manifests.Users{
		Etcd:                 account(manifests.EtcdUser),
		APIServer:            account(manifests.APIServerUser),
		ControllerManager:    account(manifests.ControllerManagerUser),
		Scheduler:            account(manifests.SchedulerUser),
		ServiceAccountKeyGID: int64(groups.ids[manifests.ServiceAccountKeyGroup]),
	}, nil
}

// wantedAccounts reads both files and adds to them what is missing.
func wantedAccounts(env *Env) (groups, users *accounts, err error) {
	if groups, err = readAccounts(env, groupFile); err != nil {
		return nil, nil, err
	}
	if users, err = readAccounts(env, passwdFile); err != nil {
		return nil, nil, err
	}
	return groups, users, addAccounts(groups, users)
}

func addAccounts(groups, users *accounts) error {
	for _, name := range append(slices.Clone(rootlessUsers), manifests.ServiceAccountKeyGroup) {
		members := name // kubeadm wants each user named in its own group
		if name == manifests.ServiceAccountKeyGroup {
			members = manifests.APIServerUser + "," + manifests.ControllerManagerUser
		}
		if err := groups.add(name, func(id int) string { return fmt.Sprintf("%s:x:%d:%s", name, id, members) }); err != nil {
			return err
		}
	}
	for _, name := range rootlessUsers {
		gid := groups.ids[name]
		err := users.add(name, func(id int) string {
			return fmt.Sprintf("%s:x:%d:%d::/nonexistent:/bin/false", name, id, gid)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// accounts is one of the two files: its text, and the numbers in it by name.
type accounts struct {
	path string
	mode fs.FileMode
	text string
	ids  map[string]int
	// changed reports that text is not what the file holds.
	changed bool
}

func readAccounts(env *Env, path string) (*accounts, error) {
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := env.Host.Lstat(path)
	if err != nil {
		return nil, err
	}
	a := &accounts{path: path, mode: info.Mode().Perm(), text: string(data), ids: map[string]int{}}
	for line := range strings.Lines(a.text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 || strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			continue // empty, or one of NIS's lines
		}
		id, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, errors.Errorf("%s: the account %q has no number in its third field; fix the file first", path, fields[0])
		}
		a.ids[fields[0]] = id
	}
	return a, nil
}

// add appends the line of a missing account, with the highest free number, as
// useradd(8) does for system accounts.
func (a *accounts) add(name string, line func(id int) string) error {
	if _, there := a.ids[name]; there {
		return nil
	}
	taken := map[int]bool{}
	for _, id := range a.ids {
		taken[id] = true
	}
	for id := maxSystemID; id >= minSystemID; id-- {
		if taken[id] {
			continue
		}
		a.ids[name], a.changed = id, true
		if a.text != "" && !strings.HasSuffix(a.text, "\n") {
			a.text += "\n"
		}
		a.text += line(id) + "\n"
		return nil
	}
	return errors.Errorf("%s: no number from %d to %d is free for the system account %q", a.path, minSystemID, maxSystemID, name)
}

func (a *accounts) write(env *Env) error {
	changed, err := env.Host.WriteFile(a.path, []byte(a.text), a.mode)
	if changed {
		env.UI.Printf("Adding the accounts of a rootless control plane to %s", a.path)
	}
	return err
}
