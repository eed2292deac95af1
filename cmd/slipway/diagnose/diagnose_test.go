// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"testing"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
)

// TestUnseen: programs get an object even if the diagnosis couldn't look everywhere. People aren't told that nothing is wrong.
func TestUnseen(t *testing.T) {
	for form, want := range map[string]string{
		"text":                 "",
		"json":                 "{\n    \"kind\": \"Diagnosis\",\n    \"apiVersion\": \"slipway.diagnose/v1\",\n    \"findings\": []\n}\n",
		"yaml":                 "apiVersion: slipway.diagnose/v1\nfindings: []\nkind: Diagnosis\n",
		"jsonpath={.findings}": "[]",
	} {
		var printed bytes.Buffer
		d := &diagnosis{TypeMeta: metav1.TypeMeta{APIVersion: "slipway.diagnose/v1", Kind: "Diagnosis"}, Findings: []fault.Finding{}}
		err := d.report(&cli.Globals{Streams: cli.Streams{Out: &printed}}, &cli.OutputOptions{Form: form}, errors.New("journalctl"))
		if fact.Error(t, err, "journalctl"); printed.String() != want {
			t.Errorf("-o %s: %q, want %q", form, &printed, want)
		}
	}
}
