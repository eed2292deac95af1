// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// proxies checks kube-proxy's configuration: its gates, its fields, and its mode (#139957).
func (c *checker) proxies() {
	if !c.takes(cmp.Or(c.ProxyFrom, c.From)) {
		return
	}
	for _, f := range c.Proxies {
		doc, ok := c.document(f)
		if !ok {
			continue
		}
		c.fields(f.Where, releases.Proxy, "", doc)
		c.gates(f.Where, releases.Proxy, gatesIn(doc))
		if !c.reaches("1.37") {
			continue
		}
		switch mode, _ := doc["mode"].(string); mode {
		case "":
			c.add(fault.Finding{Name: "proxy-mode-empty", Subject: f.Where, Field: "mode",
				Message: f.Where + ": mode is empty, which means iptables; from Kubernetes 1.40 on it means nftables",
				Remedy:  "set mode: iptables, or move to mode: nftables"})
		case "ipvs":
			c.add(fault.Finding{Name: "proxy-mode-ipvs", Subject: f.Where, Field: "mode",
				Message: f.Where + ": mode ipvs is deprecated",
				Remedy:  "move to mode: nftables"})
		}
	}
}

// files finds documents in an apiVersion the program doesn't read any more: it wouldn't start. Documents may contain others, as
// an AdmissionConfiguration does.
func (c *checker) files() {
	for _, f := range c.Files {
		docs, err := documentsIn(f.Data)
		if err != nil {
			c.add(fault.Finding{Name: NotChecked, Subject: f.Where, Field: "YAML",
				Message: fmt.Sprintf("%s: cannot be read, and was not checked: %v", f.Where, err), Remedy: "correct the file"})
			continue
		}
		for _, doc := range docs {
			c.fileVersion(f, doc)
		}
	}
}

// fileVersion checks a value of a file, and everything in it. It skips kinds that no earlier release read, such as those of
// admission plugins outside Kubernetes.
func (c *checker) fileVersion(f File, value any) {
	for _, object := range objectsIn(value) {
		apiVersion, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		if apiVersion != "" && releases.EverHadDocument(f.Program, apiVersion, kind) && !c.release.HasDocument(f.Program, apiVersion, kind) {
			c.add(fault.Finding{Name: "config-file-version", Severity: fault.Error, Subject: f.Where, Field: apiVersion + " " + kind,
				Message: fmt.Sprintf("%s: %s does not read a %s in %s", f.Where, c.programName(f.Program), kind, apiVersion),
				Remedy:  "write it as " + c.newerDocument(f.Program, kind)})
		}
		for _, below := range object {
			c.fileVersion(f, below)
		}
	}
}

// newerDocument returns the current form of a kind of configuration file. One got another name with its version (#137379).
func (c *checker) newerDocument(program, kind string) string {
	if kind == "WebhookAdmission" {
		kind += "Configuration"
	}
	versions := c.release.Documents(program, kind)
	if len(versions) == 0 {
		return "another kind: " + program + " no longer has this one"
	}
	return kind + " in " + strings.Join(versions, " or ")
}

func documentsIn(data []byte) ([]any, error) {
	var docs []any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var doc any
		if err == nil {
			err = yaml.Unmarshal(raw, &doc)
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}
