// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestLogGoesThroughTheStream: libraries' logs go to the error stream at any severity, once and without the passwords of URLs.
func TestLogGoesThroughTheStream(t *testing.T) {
	defer klog.CaptureState().Restore()
	var out bytes.Buffer
	g := &Globals{Program: "slipway", Streams: Streams{Err: &out}, verbosity: 6}
	if err := g.Apply(); err != nil {
		t.Fatal(err)
	}
	klog.V(6).Info("GET https://someone:canary@192.0.2.1/healthz")
	klog.Error("no answer from https://someone:canary@192.0.2.1/healthz")
	klog.V(8).Info("the body of a request")
	if got := out.String(); strings.Count(got, "192.0.2.1/healthz") != 2 || strings.Contains(got, "canary") || strings.Contains(got, "body") {
		t.Errorf("the log is:\n%s", got)
	}
}
