// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func (m *Move) finish(ctx context.Context, env *step.Env) error {
	if err := env.Host.Remove(node.MoveJournalPath(env.Config.Paths)); err != nil || len(m.From) == 0 {
		return err
	}
	left, err := m.findRemaining(env, env.Config.Paths.Kubernetes)
	if err != nil {
		return err
	}
	kubelets, err := m.findRemaining(env, env.Config.Paths.Kubelet, "pods", "plugins", "pki", "checkpoints")
	if err != nil {
		return err
	}
	if left = append(left, kubelets...); len(left) > 0 {
		env.UI.Nextf("Look at the files that still have the former address; rolling back to a backup among them would restore it: %s", strings.Join(left, ", "))
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		env.UI.Nextf("Other nodes may know the API by the former address: `grep server: /etc/kubernetes/*.conf` there shows it")
	}
	env.UI.Nextf("Restart the network add-on's Pod on this node if it read the address when it started, as flannel and Calico do; replace copies of admin.conf")
	return nil
}

func join(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// maxBytes is the size up to which a file may be a text with settings.
const maxBytes = 1 << 20

// findRemaining returns the files in a directory, and below, that have a former address: others made them, or they're backups.
func (m *Move) findRemaining(env *step.Env, dir string, except ...string) (left []string, err error) {
	entries, err := env.Host.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir() && !slices.Contains(except, e.Name()):
			below, err := m.findRemaining(env, path)
			if err != nil {
				return nil, err
			}
			left = append(left, below...)
		case e.Type().IsRegular():
			info, err := env.Host.Lstat(path)
			if err != nil || info.Size() > maxBytes {
				continue
			}
			if text, err := env.Host.ReadFile(path); err == nil && m.Mentions(string(text)) {
				left = append(left, path)
			}
		}
	}
	return left, nil
}
