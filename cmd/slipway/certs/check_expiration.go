// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
)

func newCheckExpiration(g *cli.Globals) *cobra.Command {
	o, output := &options{}, &cli.OutputOptions{}
	var within time.Duration
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show when this control plane's certificates expire",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("within") && !exitCode {
				return errors.New("--within needs --exit-code: it sets how soon is too soon")
			}
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := linux.New()
			defer real.Close()
			info, unread := expirations(pki.Store{Config: node, Host: real, UI: cli.NewUI(g)}, o.ConfigFile != "")
			err = cmp.Or(output.Print(g, info, info.table), unread)
			if err != nil || !exitCode {
				return err
			}
			return info.expiring(within)
		},
	}
	config.Bind(cmd.Flags(), "certs check-expiration", &o.CertsFlags)
	output.Bind(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 0, "with --exit-code: also report certificates that expire within this time, such as 720h; by default only expired ones")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false,
		"exit with code 2 if a certificate has expired, expires --within the given time, or is missing although a component needs it")
	return cmd
}

// expirations reports a missing certificate as needed if a file describes this host, or if it's a control plane: another host may
// have a copy of admin.conf, and of some certificates. If one can't be read, there are the others, and an error.
func expirations(s pki.Store, described bool) (*expirationInfo, error) {
	leaves, authorities, err := pki.Expirations(s)
	now, known := s.Host.Now(), described || thisnode.IsControlPlane(s.Host)
	return &expirationInfo{
		TypeMeta:     metav1.TypeMeta{APIVersion: cli.OutputAPI, Kind: "CertificateExpirationInfo"},
		Certificates: certificateInfos(leaves, now, known), Authorities: certificateInfos(authorities, now, known),
	}, err
}

// expirationInfo has kubeadm's fields, for scripts that parse them.
type expirationInfo struct {
	metav1.TypeMeta `json:",inline"`

	Certificates []certificateInfo `json:"certificates"`
	Authorities  []certificateInfo `json:"certificateAuthorities"`
}

type certificateInfo struct {
	Name       string       `json:"name"`
	Expiration *metav1.Time `json:"expirationDate"`
	// ResidualTime is in seconds.
	ResidualTime int64  `json:"residualTime"` // in seconds
	External     bool   `json:"externallyManaged"`
	CAName       string `json:"caName,omitempty"`
	Missing      bool   `json:"missing"`
	Unreadable   bool   `json:"unreadable,omitempty"`
	needed       bool
}

func (i *expirationInfo) DeepCopyObject() runtime.Object { return new(*i) }

func certificateInfos(list []pki.Expiration, now time.Time, known bool) []certificateInfo {
	out := make([]certificateInfo, len(list))
	for i, e := range list {
		out[i] = certificateInfo{Name: e.Name, External: e.External, CAName: e.CA, Missing: e.Missing, Unreadable: e.Unreadable, needed: known && e.Needed}
		if e.Missing || e.Unreadable {
			out[i].CAName = ""
			continue
		}
		out[i].Expiration = new(metav1.NewTime(e.NotAfter.UTC()))
		out[i].ResidualTime = int64(e.NotAfter.Sub(now).Seconds())
	}
	return out
}

// expiring returns an error with exit code 2 if a certificate expires within d, if there's none, or if a component lacks its own.
// Kubeconfig files may be missing: administrators remove theirs, and a directory may have certificates alone.
func (i *expirationInfo) expiring(d time.Duration) error {
	all := slices.Concat(i.Certificates, i.Authorities)
	if !slices.ContainsFunc(all, func(c certificateInfo) bool { return !c.Missing }) {
		return cli.ExitError{Code: 2, Message: "no certificates found: run this on a control plane, or name their directory with --cert-dir"}
	}
	var parts []string
	ending := namesOf(all, func(c certificateInfo) bool { return !c.Missing && time.Duration(c.ResidualTime)*time.Second <= d })
	if ending != "" {
		remedy := "`slipway certs renew all` renews everything except CAs"
		if slices.ContainsFunc(i.Certificates, func(c certificateInfo) bool { return c.External }) {
			remedy += "; `slipway certs generate-csr` makes requests for a CA whose key is elsewhere"
		}
		parts = append(parts, fmt.Sprintf("expired, or expiring within %s: %s; %s", d, ending, remedy))
	}
	missing := func(c certificateInfo) bool { return c.Missing && c.needed }
	if names := namesOf(i.Authorities, missing); names != "" { // a new CA wouldn't be the cluster's
		parts = append(parts, "missing CAs: "+names+"; copy each of them, and its key, from another control plane or a backup")
	}
	if names := namesOf(i.Certificates, missing); names != "" {
		parts = append(parts, "missing: "+names+
			"; `slipway init phase certs NAME` creates each; give it your configuration with --config, for the names in it")
	}
	if len(parts) == 0 {
		return nil
	}
	return cli.ExitError{Code: 2, Message: strings.Join(parts, "; ")}
}

func namesOf(list []certificateInfo, want func(certificateInfo) bool) string {
	var names []string
	for _, c := range list {
		if want(c) {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (i *expirationInfo) table(w io.Writer) error {
	var leaves, authorities [][]string
	for _, c := range i.Certificates {
		leaves = append(leaves, append(c.begin(), c.CAName, c.external()))
	}
	for _, c := range i.Authorities {
		authorities = append(authorities, append(c.begin(), c.external()))
	}
	if err := ui.Table(w, "CERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED", leaves); err != nil {
		return err
	}
	return ui.Table(w, "\nCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\tEXTERNALLY MANAGED", authorities)
}

// begin returns the first columns of both tables.
func (c *certificateInfo) begin() []string {
	switch {
	case c.Missing:
		return []string{"!MISSING! " + c.Name, "", ""}
	case c.Unreadable:
		return []string{"!UNREADABLE! " + c.Name, "", ""}
	}
	residual := duration.ShortHumanDuration(time.Duration(c.ResidualTime) * time.Second)
	return []string{c.Name, c.Expiration.UTC().Format("Jan 02, 2006 15:04 MST"), residual}
}

func (c *certificateInfo) external() string {
	switch {
	case c.Missing, c.Unreadable:
		return ""
	case c.External:
		return "yes"
	}
	return "no"
}
