// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"strings"

	"github.com/slipway-k8s/slipway/test/fixture"
)

var SomeKey = strings.Repeat("cd", 32)

const StoredPlane = fixture.ClusterConfiguration + "controlPlaneEndpoint: api.example.org:6443\nencryptionAlgorithm: ECDSA-P256\n"
