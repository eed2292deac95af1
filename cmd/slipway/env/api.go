// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/phases/step"
)

// NewAPIParts are for commands talking to the API and only reading from this host: they take no lock and have no etcd. limit is how
// long the API may take to answer.
func NewAPIParts(g *cli.Globals, kubeconfig UserKubeconfig, limit time.Duration) *Parts {
	real := linux.New()
	return &Parts{
		Env:     &step.Env{Machine: config.DefaultMachine(), Host: real, Cluster: UserCluster(kubeconfig, limit), UI: cli.NewUI(g)},
		begin:   noLock,
		Confirm: call,
		Show:    call,
		Close:   real.Close,
	}
}

// UserCluster is the cluster of the user's kubeconfig, which has to answer within limit.
func UserCluster(kubeconfig UserKubeconfig, limit time.Duration) *cluster.Real {
	return cluster.New(cluster.Options{
		Kubeconfig: cmp.Or(kubeconfig.String(), config.DefaultAdminKubeconfig),
		ReadFile:   func(string) ([]byte, error) { return kubeconfig.Read() },
		Timeout:    limit,
	})
}

// UserKubeconfig is the user's kubeconfig, which may consist of several files.
type UserKubeconfig []string

// KubeconfigOfUser is for commands about a cluster: --kubeconfig, or else kubectl's files, or else admin.conf.
func KubeconfigOfUser(cmd *cobra.Command) UserKubeconfig {
	if path := KubeconfigFlag(cmd); path != "" {
		return UserKubeconfig{path}
	}
	return cluster.UserKubeconfig(config.DefaultAdminKubeconfig)
}

// KubeconfigOfNode is for commands about this host's files: their cluster is this node's, not the user's.
func KubeconfigOfNode(cmd *cobra.Command) UserKubeconfig {
	if _, err := os.Lstat(config.DefaultAdminKubeconfig); err == nil && KubeconfigFlag(cmd) == "" {
		return UserKubeconfig{config.DefaultAdminKubeconfig}
	}
	return KubeconfigOfUser(cmd)
}

// KubeconfigFlag is --kubeconfig if given, not the flag's default.
func KubeconfigFlag(cmd *cobra.Command) string {
	f := cmd.Flag("kubeconfig")
	if f == nil || !f.Changed {
		return ""
	}
	return f.Value.String()
}

// String has the form of KUBECONFIG.
func (k UserKubeconfig) String() string { return strings.Join(k, string(filepath.ListSeparator)) }

// Read merges the files, and advises the user if there are none.
func (k UserKubeconfig) Read() ([]byte, error) {
	data, err := cluster.LoadKubeconfig(k...)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	variable := clientcmd.RecommendedConfigPathEnvVar
	if listed := os.Getenv(variable); listed != "" && k.String() == config.DefaultAdminKubeconfig {
		err = errors.WithMessagef(err, "no file in %s=%s exists", variable, listed)
	}
	return nil, fault.WithRemedy(err, "run this on a control plane, or name another file with --kubeconfig or "+variable)
}
