// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
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
			info, err := expirations(g, node)
			if err != nil {
				return err
			}
			err = output.Print(g, info, info.table)
			if err != nil || !exitCode {
				return err
			}
			return info.expiring(within)
		},
	}
	config.Bind(cmd.Flags(), "certs check-expiration", &o.CertsFlags)
	output.Bind(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 0, "with --exit-code: also report certificates that expire within this time, such as 720h; by default only expired ones")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with code 2 if a certificate has expired, or expires --within the given time")
	return cmd
}

func expirations(g *cli.Globals, node *config.Node) (*expirationInfo, error) {
	real := linux.New()
	defer real.Close()
	leaves, authorities, err := pki.Expirations(pki.Store{Config: node, Host: real, UI: cli.NewUI(g)})
	if err != nil {
		return nil, err
	}
	now := real.Now()
	return &expirationInfo{
		TypeMeta:     metav1.TypeMeta{APIVersion: cli.OutputAPI, Kind: "CertificateExpirationInfo"},
		Certificates: certificateInfos(leaves, now), Authorities: certificateInfos(authorities, now),
	}, nil
}
