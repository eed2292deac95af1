// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package thread runs code on an operating-system thread with its own namespaces and cgroups. Processes started from such a
// thread inherit them, so the lab needs no helper program and leaves no mounts behind: mounts in a private mount namespace go
// away with its last process.
package thread

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// errAborted is Do's error if fn ended its goroutine instead of returning.
var errAborted = errors.New("the function on its own thread did not return")

// Do runs fn on a thread that's thrown away afterwards, so fn may change the thread's namespaces, root and cgroups. Goroutines
// that fn starts don't run on that thread.
func Do(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := errAborted
		defer func() { result <- err }()
		if unix.Gettid() == os.Getpid() {
			// /proc/self describes the main thread, so that thread has to stay as it is.
			err = Do(fn)
			runtime.UnlockOSThread()
			return
		}
		err = fn()
	}()
	return <-result
}

// PrivateMounts gives the calling thread its own mount namespace. Mounts made elsewhere still arrive in it; its own stay inside.
func PrivateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return errors.Wrap(err, "cannot make a mount namespace")
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	return errors.Wrap(err, "cannot make the mount namespace private")
}

// EnterNet moves the calling thread into the network namespace kept at path.
func EnterNet(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return errors.Wrap(err, "cannot open the network namespace")
	}
	defer f.Close()
	err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	return errors.Wrapf(err, "cannot enter the network namespace %s", path)
}

// EnterRoot makes root the calling thread's root and working directory.
func EnterRoot(root string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return errors.Wrap(err, "cannot give the thread a root of its own")
	}
	if err := unix.Chroot(root); err != nil {
		return errors.Wrapf(err, "cannot change the root to %s", root)
	}
	return errors.Wrap(unix.Chdir("/"), "cannot change to the new root")
}

// EnterProcess moves the calling thread into all namespaces of a process except its user namespace. Only processes started
// afterwards are in the process namespace, not the thread itself.
func EnterProcess(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Wrap(err, "cannot open a process")
	}
	defer unix.Close(fd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return errors.Wrap(err, "cannot give the thread a root of its own")
	}
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	return errors.Wrap(unix.Setns(fd, all), "cannot enter a process's namespaces")
}

// JoinCgroups moves the calling thread into cgroups of version 1, where a thread can be in other cgroups than its process.
func JoinCgroups(dirs []string) error {
	for _, dir := range dirs {
		tasks := filepath.Join(dir, "tasks")
		if err := os.WriteFile(tasks, []byte(strconv.Itoa(unix.Gettid())), 0); err != nil {
			return errors.Wrap(err, "cannot join a cgroup")
		}
	}
	return nil
}
