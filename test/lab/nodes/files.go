// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// Inside runs fn on a thread whose root is the node's, so that package os shows the node's files there. It works on a stopped
// node too. fn must stay on its goroutine: others run outside.
func (n *Node) Inside(fn func() error) error {
	if leader, err := n.leader(); err == nil {
		return insideRunning(leader, fn)
	}
	unlock, err := n.lock(context.Background()) // nobody may boot it while its root is mounted here
	if err != nil {
		return err
	}
	if leader, err := n.leader(); err == nil { // it has booted since
		unlock()
		return insideRunning(leader, fn)
	}
	defer unlock()
	return thread.Do(func() error {
		if err := n.mountStopped(); err != nil {
			return err
		}
		if err := thread.EnterRoot(n.root()); err != nil {
			return err
		}
		return fn()
	})
}

func insideRunning(leader int, fn func() error) error {
	return thread.Do(func() error {
		if err := thread.EnterRoot(inRoot(leader, "/")); err != nil {
			return err
		}
		return fn()
	})
}

// mountStopped makes systemd-nspawn's mounts, for the calling thread only.
func (n *Node) mountStopped() error {
	if err := thread.PrivateMounts(); err != nil {
		return err
	}
	if err := n.mountRoot(); err != nil {
		return err
	}
	for _, name := range diskDirs {
		target := filepath.Join(n.root(), "var/lib", name)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return errors.Wrap(err, "cannot make a directory of the node")
		}
		if err := unix.Mount(n.disk(name), target, "", unix.MS_BIND, ""); err != nil {
			return errors.Wrapf(err, "cannot mount the node's %s", name)
		}
	}
	return nil
}

// ReadFile reads a file of the node.
func (n *Node) ReadFile(path string) ([]byte, error) {
	var data []byte
	err := n.Inside(func() (err error) {
		data, err = os.ReadFile(path)
		return err
	})
	return data, errors.Wrapf(err, "node %s", n.state.Name)
}

// WriteFile writes a file of the node, with the directories above it.
func (n *Node) WriteFile(path string, data []byte, mode os.FileMode) error {
	err := n.Inside(func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return err
		}
		return os.Chmod(path, mode) // regardless of the umask and the file's former mode
	})
	return errors.Wrapf(err, "node %s", n.state.Name)
}

// CopyIn copies a file, or the contents of a directory, from this machine into the node.
func (n *Node) CopyIn(from, to string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return errors.Wrap(err, "cannot copy into a node")
	}
	source, name, err := openPlace(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer source.Close()
	err = n.Inside(func() error {
		target, targetName, err := openPlace(to, os.O_CREATE)
		if err != nil {
			return err
		}
		defer target.Close()
		return copyTree(source, name, target, targetName)
	})
	return errors.Wrapf(err, "cannot copy %s into node %s", from, n.state.Name)
}

// CopyOut copies a file, or the contents of a directory, from the node to this machine.
func (n *Node) CopyOut(from, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return errors.Wrap(err, "cannot copy out of a node")
	}
	target, name, err := openPlace(to, os.O_CREATE)
	if err != nil {
		return err
	}
	defer target.Close()
	err = n.Inside(func() error {
		source, sourceName, err := openPlace(from, os.O_RDONLY)
		if err != nil {
			return err
		}
		defer source.Close()
		return copyTree(source, sourceName, target, name)
	})
	return errors.Wrapf(err, "cannot copy %s out of node %s", from, n.state.Name)
}

// openPlace opens the directory above path, following links, so that its files can be reached from either side of a changed root.
// With O_CREATE it makes the directory.
func openPlace(path string, flag int) (*os.Root, string, error) {
	path = filepath.Clean(path)
	dir, name := filepath.Split(path)
	if strings.HasSuffix(path, "/") || name == "" {
		name = "."
	}
	if flag&os.O_CREATE != 0 {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, "", errors.Wrap(err, "cannot make a directory")
		}
	}
	root, err := os.OpenRoot(dir)
	return root, name, errors.Wrap(err, "cannot open a directory")
}
