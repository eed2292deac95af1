// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/pkg/errors"
	"gopkg.in/evanphx/json-patch.v4"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Text returns the cluster's stored configuration as documents to edit, with defaults.
func (l Loader) Text(ctx context.Context) ([]byte, error) {
	_, stored, err := l.read(ctx, rows(), nil)
	if err != nil {
		return nil, err
	}
	n, _, err := l.node(stored)
	if err != nil {
		return nil, err
	}
	var texts [][]byte
	for _, r := range rows() {
		if stored[r.source] == nil {
			continue
		}
		text, err := r.document(n)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return bytes.Join(texts, []byte("---\n")), nil
}

// Edited returns the documents for Load to change the configuration as somebody has edited its text. A missing field goes
// back to its default, a missing document stays. It's empty if nothing has changed. A field of a newer version that nobody has
// touched isn't in it, so it isn't refused.
func Edited(before, after []byte) ([]byte, error) {
	old, err := byKind(before)
	if err != nil {
		return nil, err
	}
	documents, err := split(after)
	if err != nil {
		return nil, err
	}
	var changes [][]byte
	for _, d := range documents {
		patch := d.json // of another kind; Load refuses it
		if base := old[d.kind]; base != nil {
			if patch, err = jsonpatch.CreateMergePatch(base, d.json); err != nil {
				return nil, errors.Wrap(err, d.kind)
			}
			if bytes.Equal(patch, []byte("{}")) {
				continue
			}
			if patch, err = jsonpatch.MergePatch(patch, d.header()); err != nil {
				return nil, errors.Wrap(err, d.kind)
			}
		}
		text, err := yaml.JSONToYAML(patch)
		if err != nil {
			return nil, errors.WithStack(err)
		}
		changes = append(changes, text)
	}
	return bytes.Join(changes, []byte("---\n")), nil
}

type document struct {
	apiVersion, kind string
	json             []byte
}

// header is a document with nothing but its type.
func (d document) header() []byte {
	data, _ := json.Marshal(map[string]string{"apiVersion": d.apiVersion, "kind": d.kind}) // strings can always be encoded
	return data
}

func byKind(text []byte) (map[string][]byte, error) {
	documents, err := split(text)
	all := map[string][]byte{}
	for _, d := range documents {
		all[d.kind] = d.json
	}
	return all, err
}

// split returns the documents in a YAML text, without empty ones.
func split(text []byte) ([]document, error) {
	var all []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, errors.WithStack(err)
		}
		data, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, errors.WithStack(err)
		}
		if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
			continue
		}
		var is struct{ APIVersion, Kind string }
		if err := json.Unmarshal(data, &is); err != nil {
			return nil, errors.WithMessage(err, "a document is no mapping with apiVersion and kind")
		}
		all = append(all, document{is.APIVersion, is.Kind, data})
	}
}
