// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"io/fs"
	"time"

	"github.com/pkg/errors"
)

// awaitInterval is how often AwaitFile looks.
const awaitInterval = 50 * time.Millisecond

// AwaitFile implements FileReader.
func (r *Root) AwaitFile(ctx context.Context, path string, accept func(data []byte) error) error {
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	for {
		data, err := r.ReadFile(path)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return err
		}
		var last error
		switch {
		case missing:
			last = errors.Errorf("%s does not exist yet", path)
		case accept != nil:
			last = accept(data)
		}
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Wrap(context.Cause(ctx), last.Error())
		case <-ticker.C:
		}
	}
}
