// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import "github.com/slipway-k8s/slipway/internal/host"

// only is a host with nothing but files: anything else panics.
type only struct {
	*Root
	rest
}

type rest struct{ host.Host }

func onlyFiles() only { return onlyFilesAt("") }

func onlyFilesAt(root string) only { return only{Root: At(root)} }
