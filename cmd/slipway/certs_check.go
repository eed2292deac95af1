// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/renewal"
)

// expirationInfo has the form that the peer's users parse.
type expirationInfo struct {
	metav1.TypeMeta `json:",inline"`

	Certificates []certificateInfo `json:"certificates"`
	Authorities  []certificateInfo `json:"certificateAuthorities"`
}

type certificateInfo struct {
	Name       string       `json:"name"`
	Expiration *metav1.Time `json:"expirationDate"`
	// ResidualTime is in seconds.
	ResidualTime int64  `json:"residualTime"`
	External     bool   `json:"externallyManaged"`
	CAName       string `json:"caName,omitempty"`
	Missing      bool   `json:"missing"`
}

// DeepCopyObject makes it an object for the printers.
func (i *expirationInfo) DeepCopyObject() runtime.Object { return new(*i) }

func newCheckExpiration(g *globals) *cobra.Command {
	var within time.Duration
	var exitCode bool
	o, out := &certOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show until when the certificates of this control plane node are valid",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("within") && !exitCode {
				return errors.New("--within says what --exit-code counts as too soon; give --exit-code as well")
			}
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := host.New()
			defer real.Close()
			leaves, authorities, err := renewal.Expirations(pki.Store{Config: node, Host: real, UI: newUI(g)})
			if err != nil {
				return err
			}
			now := real.Now()
			info := &expirationInfo{
				TypeMeta:     metav1.TypeMeta{APIVersion: outputAPI, Kind: "CertificateExpirationInfo"},
				Certificates: certificateInfos(leaves, now), Authorities: certificateInfos(authorities, now),
			}
			err = out.print(g, info, func(_ runtime.Object, w io.Writer) error { return info.table(w) })
			if err != nil || !exitCode {
				return err
			}
			return info.expiring(within)
		},
	}
	o.bind(cmd, config.DefaultCertificatesDir)
	bindKubeconfig(cmd.Flags())
	out.bind(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 0, "with --exit-code: how soon is too soon, such as 720h; by default only what has expired counts")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 2 when a certificate expires --within that time")
	return cmd
}

func certificateInfos(list []renewal.Expiration, now time.Time) []certificateInfo {
	out := make([]certificateInfo, len(list))
	for i, e := range list {
		out[i] = certificateInfo{Name: e.Name, External: e.External, CAName: e.CA, Missing: e.Missing}
		if e.Missing {
			out[i].CAName = ""
			continue
		}
		out[i].Expiration = new(metav1.NewTime(e.NotAfter.UTC()))
		out[i].ResidualTime = int64(e.NotAfter.Sub(now).Seconds())
	}
	return out
}

// expiring is an error with an exit code of its own where something expires
// within d.
func (i *expirationInfo) expiring(d time.Duration) error {
	var names []string
	all := append(i.Certificates, i.Authorities...)
	if !slices.ContainsFunc(all, func(c certificateInfo) bool { return !c.Missing }) {
		return exitError{2, "there is no certificate at all here: run this on a control plane, or name the folder with --cert-dir"}
	}
	for _, c := range all {
		if !c.Missing && time.Duration(c.ResidualTime)*time.Second <= d {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return exitError{2, fmt.Sprintf("expired, or expiring within %s: %s; `slipway certs renew` renews all but CAs", d, strings.Join(names, ", "))}
}

func (i *expirationInfo) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED")
	for _, c := range i.Certificates {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.begin(), c.CAName, c.external())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\tEXTERNALLY MANAGED")
	for _, c := range i.Authorities {
		fmt.Fprintf(t, "%s\t%s\n", c.begin(), c.external())
	}
	return t.Flush()
}

// begin are the columns that both tables have.
func (c *certificateInfo) begin() string {
	if c.Missing {
		return "!MISSING! " + c.Name + "\t\t"
	}
	residual := duration.ShortHumanDuration(time.Duration(c.ResidualTime) * time.Second)
	return c.Name + "\t" + c.Expiration.UTC().Format("Jan 02, 2006 15:04 MST") + "\t" + residual
}

func (c *certificateInfo) external() string {
	switch {
	case c.Missing:
		return ""
	case c.External:
		return "yes"
	}
	return "no"
}
