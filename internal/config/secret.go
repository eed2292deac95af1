// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
)

const redacted = "[redacted]"

// Secret holds a value no fmt verb, encoder or log prints. Only Reveal returns it, so a search for that word finds every use.
type Secret struct{ value string }

var (
	_ fmt.Formatter  = Secret{}
	_ json.Marshaler = Secret{}
)

// NewSecret wraps value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.value == "" }

// Format prints a placeholder for every verb, including %#v and %+v.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalJSON encodes a placeholder.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
