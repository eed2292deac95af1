// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/host"
)

// LookPath implements SystemReader: a program that the plan has written is there, before one that comes later in PATH.
func (o *overlay) LookPath(name string) (string, error) {
	there, err := o.base.LookPath(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if n := o.nodes[path]; n != nil && !n.removed && n.mode&0o111 != 0 {
			return path, nil
		}
		if err == nil && path == there {
			break
		}
	}
	return there, err
}

// ProgramVersion implements SystemReader. A program that the plan has written cannot be run yet.
func (o *overlay) ProgramVersion(ctx context.Context, path string) (string, error) {
	o.mu.Lock()
	n := o.nodes[filepath.Clean(path)]
	o.mu.Unlock()
	if n != nil {
		return "", host.ErrNotInPlan
	}
	return o.base.ProgramVersion(ctx, path)
}
