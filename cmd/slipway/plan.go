// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
)

// plan is what a dry run would do, in order.
type plan struct {
	mu    sync.Mutex
	steps []step
}

type step struct {
	title string
	body  string
}

func (p *plan) add(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, s)
	// Images are pulled side by side, in no order: a plan has them sorted.
	for i := len(p.steps) - 1; i > 0 && p.steps[i].isPull() && p.steps[i-1].isPull() && p.steps[i].title < p.steps[i-1].title; i-- {
		p.steps[i], p.steps[i-1] = p.steps[i-1], p.steps[i]
	}
}

func (s step) isPull() bool { return strings.HasPrefix(s.title, string(host.Pull)) }

func (p *plan) addHost(a host.Action) {
	s := step{title: a.String()}
	switch {
	case a.Secret:
		s.title += " (secret, not shown)"
	case a.Verb == host.Write:
		s.body = describeFile(a.Data)
	}
	p.add(s)
}

func (p *plan) addCluster(a cluster.Action) {
	name := a.Name
	if a.Namespace != "" {
		name = a.Namespace + "/" + name
	}
	s := step{title: strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", a.Verb, a.Kind, name)), " ")}
	if a.Object != nil {
		data, err := yaml.Marshal(a.Object)
		if err != nil {
			data = []byte(err.Error())
		}
		s.body = withoutCertificates(string(data))
	}
	p.add(s)
}

// print writes the plan as numbered steps, contents indented.
func (p *plan) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Plan: %d steps. Nothing has been done.\n", len(p.steps))
	for i, s := range p.steps {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, s.title)
		for line := range strings.Lines(s.body) {
			b.WriteString("    " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describeFile is a file's content as a plan shows it: certificates and public
// keys, which are random, as what they say.
func describeFile(data []byte) string {
	block, _ := pem.Decode(data)
	if block == nil {
		return string(data)
	}
	if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
		return describeCertificate(cert)
	}
	return "(" + strings.ToLower(block.Type) + ")\n"
}

func describeCertificate(c *x509.Certificate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "certificate of %s, issued by %s, for %s\n", c.Subject, c.Issuer, c.NotAfter.Sub(c.NotBefore))
	if names := append(c.DNSNames, addresses(c)...); len(names) > 0 {
		fmt.Fprintf(&b, "names: %s\n", strings.Join(names, ", "))
	}
	return b.String()
}

func addresses(c *x509.Certificate) []string {
	var out []string
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

var certificateData = regexp.MustCompile(`(certificate-authority-data:) [A-Za-z0-9+/=]+`)

func withoutCertificates(text string) string {
	return certificateData.ReplaceAllString(text, "$1 <certificate of the cluster's CA>")
}
