// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package schema holds what Slipway prints for programs against the JSON
// Schemas in docs.
package schema

import (
	"bytes"
	"path/filepath"
	"runtime"

	"github.com/pkg/errors"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON Schema.
type Schema struct{ compiled *jsonschema.Schema }

// Events is that of the events of a run.
func Events() (*Schema, error) { return load("events.schema.json") }

// Plan is that of a dry run's output.
func Plan() (*Schema, error) { return load("plan.schema.json") }

// BundleIndex is that of the index in a bundle.
func BundleIndex() (*Schema, error) { return load("bundle-index.schema.json") }

func load(name string) (*Schema, error) {
	_, here, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(here), "../../docs", name)
	compiled, err := jsonschema.NewCompiler().Compile(path)
	return &Schema{compiled}, err
}

// Check holds one JSON document against the schema.
func (s *Schema) Check(document []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return errors.Wrapf(err, "%s", document)
	}
	return errors.Wrapf(s.compiled.Validate(value), "%s", document)
}

// CheckLines holds each line against the schema, and tells how many there are.
func (s *Schema) CheckLines(text []byte) (int, error) {
	count := 0
	for line := range bytes.Lines(text) {
		if err := s.Check(line); err != nil {
			return count, errors.Wrapf(err, "line %d", count+1)
		}
		count++
	}
	return count, nil
}
