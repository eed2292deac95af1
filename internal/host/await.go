// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io/fs"
	"os"
	"time"

	"github.com/pkg/errors"
)

// awaitInterval is how often a file is looked for.
const awaitInterval = 50 * time.Millisecond

// AwaitFile implements Files.
func (r *Real) AwaitFile(ctx context.Context, path string) error {
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	for {
		_, err := os.Lstat(r.path(path))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Wrapf(context.Cause(ctx), "%s does not exist yet", path)
		case <-ticker.C:
		}
	}
}

// AwaitFile implements Files: what the program would write, a plan takes for
// written.
func (o *overlay) AwaitFile(context.Context, string) error { return nil }
