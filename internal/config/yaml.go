// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// MaxSize is the maximum size of a configuration, in bytes.
const MaxSize = 1 << 20

// Limits on untrusted input. A real file has a few kilobytes, eight levels, and no aliases.
const (
	maxDepth     = 64
	maxAliases   = 64
	maxExpansion = 20_000 // nodes reached through aliases
	maxDocuments = 64
)

// document is one of a source's YAML documents, not yet decoded into a type.
type document struct {
	root *yaml.Node
	line int
}

var yamlErrorLine = lazyregexp.New(`^yaml: (?:line (\d+): )?(.*)$`)

// parse splits src into its documents, without empty ones. A syntax error is a fault and ends parsing; earlier documents stay.
func parse(src *Source, f *findings) []document {
	if len(src.Data) > MaxSize {
		f.fault(Fault{File: src.Name, Message: "is larger than the limit of 1 MiB"})
		return nil
	}
	var docs []document
	dec := yaml.NewDecoder(bytes.NewReader(src.Data))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			f.fault(syntaxFault(src.Name, err))
			return docs
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue
		}
		if len(docs) == maxDocuments {
			f.fault(Fault{File: src.Name, Line: node.Line, Message: fmt.Sprintf("contains more than %d documents", maxDocuments)})
			return docs
		}
		root := node.Content[0]
		if excess := (&expansion{}).excess(root, 0); excess != "" {
			f.fault(Fault{File: src.Name, Line: root.Line, Message: excess})
			continue
		}
		docs = append(docs, document{root: root, line: root.Line})
	}
}

// expansion measures a document, to refuse deep nesting and multiplication through aliases.
type expansion struct {
	aliases  int
	nodes    int // reached through aliases
	followed int // aliases on the way to the current node
}

// excess walks n and describes the limit it exceeds; it's empty if there's none.
func (e *expansion) excess(n *yaml.Node, depth int) string {
	if e.followed > 0 {
		e.nodes++
	}
	switch {
	case depth > maxDepth:
		return fmt.Sprintf("is nested more than %d levels deep", maxDepth)
	case e.aliases > maxAliases || e.nodes > maxExpansion:
		return "becomes too large when YAML aliases are expanded; write the values out"
	case n.Kind == yaml.AliasNode:
		e.aliases++
		e.followed++
		defer func() { e.followed-- }()
		return e.excess(n.Alias, depth+1)
	}
	for _, child := range n.Content {
		if excess := e.excess(child, depth+1); excess != "" {
			return excess
		}
	}
	return ""
}

// syntaxFault converts a YAML parser's error to a fault. The parser quotes no values except anchors' names, which are left out.
func syntaxFault(file string, err error) Fault {
	fault := Fault{File: file, Message: "is not valid YAML"}
	m := yamlErrorLine().FindStringSubmatch(err.Error())
	if m == nil {
		return fault
	}
	fault.Line, _ = strconv.Atoi(m[1])
	switch {
	case strings.HasPrefix(m[2], "unknown anchor"):
		fault.Message += ": an alias names an anchor that does not exist"
	default:
		fault.Message += ": " + m[2]
	}
	return fault
}
