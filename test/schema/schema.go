// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package schema checks Slipway's output for programs against the JSON Schemas in docs.
package schema

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON Schema.
type Schema struct{ compiled *jsonschema.Schema }

// Events returns the schema of a run's events.
func Events() (*Schema, error) { return load("events.schema.json") }

// Plan returns the schema of a dry run's output.
func Plan() (*Schema, error) { return load("plan.schema.json") }

// BundleIndex returns the schema of a bundle's index.
func BundleIndex() (*Schema, error) { return load("bundle-index.schema.json") }

// load finds the schema from any directory in the source, where tests run.
func load(name string) (*Schema, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		path := filepath.Join(dir, "docs", name)
		if _, err := os.Stat(path); err == nil {
			compiled, err := jsonschema.NewCompiler().Compile(path)
			return &Schema{compiled}, err
		}
		if dir == filepath.Dir(dir) {
			return nil, errors.Errorf("docs/%s is in no directory above this one", name)
		}
		dir = filepath.Dir(dir)
	}
}

// Check checks one JSON document against the schema.
func (s *Schema) Check(document []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return errors.Wrapf(err, "%s", document)
	}
	return errors.Wrapf(s.compiled.Validate(value), "%s", document)
}

// CheckLines checks each line against the schema, and returns their number.
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
