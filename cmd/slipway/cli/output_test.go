// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestOfferedFormatsAreTaken compares the formats offered by help and completion with the printers.
func TestOfferedFormatsAreTaken(t *testing.T) {
	for _, form := range (&OutputOptions{}).forms() {
		if !strings.HasSuffix(form, "=") {
			if _, err := (&OutputOptions{Form: form}).Printer(); err != nil {
				t.Errorf("%s: %v", form, err)
			}
		}
	}
	for _, form := range templateForms() {
		if _, err := (&OutputOptions{Form: form}).Printer(); err == nil || !strings.Contains(err.Error(), "template") {
			t.Errorf("%s: %v", form, err)
		}
	}
}
