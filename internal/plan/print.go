// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// CheckForm checks that a plan can be printed in this form of -o.
func CheckForm(form string) error {
	switch form {
	case "text", "json", "yaml":
		return nil
	}
	return errors.Errorf("unknown --output %q: expected text, json or yaml", form)
}

// Write prints the plan to w in its Form: text, json or yaml.
func (p *Plan) Write(w io.Writer) error {
	if p.Form == "text" {
		return p.print(w)
	}
	data, err := p.encode()
	if err == nil && p.Form == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// print writes the plan as numbered steps with their contents, or, with --diff, only the changes.
func (p *Plan) print(w io.Writer) error {
	var b strings.Builder
	steps := "steps"
	if len(p.Steps) == 1 {
		steps = "step"
	}
	fmt.Fprintf(&b, "Plan: %d %s. Nothing has been done.\n", len(p.Steps), steps)
	if p.assumed != nil {
		fmt.Fprintf(&b, "The cluster was not asked: values that depend on it are marked %s or assumed to be the default. --diff asks it.\n", fromCluster("WHAT"))
	}
	for _, e := range p.effects {
		b.WriteString("- " + e.Text + "\n")
	}
	for i, s := range p.Steps {
		body := s.body
		if p.now != nil {
			s.title += s.remark()
			body = s.difference()
		}
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, s.title)
		for line := range strings.Lines(body) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// difference is a step's change, or all of its content if the change isn't known.
func (s step) difference() string {
	if s.Action == string(host.Write) || s.Change != "" {
		return s.Diff
	}
	return s.body
}

func (s step) remark() string {
	switch {
	case s.Now != "":
		return " (now " + s.Now + ")"
	case s.Change == "create":
		return ": new"
	case s.Change == "update":
		return ": changes"
	case s.Change == "none":
		return ": unchanged"
	}
	return ""
}

// showObject returns an object for programs and for people, without its status, which is never written.
func showObject(obj cluster.Object) (manifest json.RawMessage, text string) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err.Error()
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, err.Error()
	}
	delete(fields, "status")
	if meta, ok := fields["metadata"].(map[string]any); ok { // read from the API, to be changed
		for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"} {
			delete(meta, field)
		}
	}
	redact.Fields(fields)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, err.Error()
	}
	masked := []byte(withoutRandom(b.String()))
	if data, err = yaml.JSONToYAML(masked); err != nil {
		return nil, err.Error()
	}
	return masked, string(data)
}

// describeFile returns a file's content as a plan shows it: descriptions of certificates and public keys, which are random, and
// no values of environment variables or passwords of proxies.
func describeFile(data []byte) string {
	block, _ := pem.Decode(data)
	if block == nil {
		return redact.Document(string(data))
	}
	if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
		return describeCertificate(cert)
	}
	return "(" + strings.ToLower(block.Type) + ")\n"
}

func describeCertificate(c *x509.Certificate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "certificate of %s, issued by %s, for %s\n", c.Subject, c.Issuer, c.NotAfter.Sub(c.NotBefore))
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, "names: %s\n", strings.Join(names, ", "))
	}
	return b.String()
}

var (
	certificateData = regexp.MustCompile(`(certificate-authority-data:) [A-Za-z0-9+/=]+`)
	// detachedJWS is a signature of cluster-info, which contains a certificate.
	detachedJWS = regexp.MustCompile(`eyJ[\w-]+\.\.[\w-]+`)
)

// withoutRandom replaces random values, so the same input gives the same plan.
func withoutRandom(text string) string {
	text = certificateData.ReplaceAllString(text, "$1 <certificate of the cluster's CA>")
	return detachedJWS.ReplaceAllString(text, "<signature of the kubeconfig with this token>")
}
