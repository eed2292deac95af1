// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// userKubeconfig is the kubeconfig that the user means, which may consist of several files.
type userKubeconfig []string

// kubeconfigOfUser is for commands that work on a cluster: the file of --kubeconfig, or else what kubectl would use, or
// else admin.conf.
func kubeconfigOfUser(cmd *cobra.Command) userKubeconfig {
	if path := kubeconfigFlag(cmd); path != "" {
		return userKubeconfig{path}
	}
	return cluster.UserKubeconfig(config.DefaultAdminKubeconfig)
}

// kubeconfigOfNode is for commands that work on this host's files: their cluster is this node's, wherever the user's
// kubeconfig leads.
func kubeconfigOfNode(cmd *cobra.Command) userKubeconfig {
	if _, err := os.Lstat(config.DefaultAdminKubeconfig); err == nil && kubeconfigFlag(cmd) == "" {
		return userKubeconfig{config.DefaultAdminKubeconfig}
	}
	return kubeconfigOfUser(cmd)
}

// kubeconfigFlag is --kubeconfig if it is given, and not the flag's default.
func kubeconfigFlag(cmd *cobra.Command) string {
	f := cmd.Flag("kubeconfig")
	if f == nil || !f.Changed {
		return ""
	}
	return f.Value.String()
}

// String is in the form of KUBECONFIG.
func (k userKubeconfig) String() string { return strings.Join(k, string(filepath.ListSeparator)) }

// read merges the files into one, and gives advice if there are none.
func (k userKubeconfig) read() ([]byte, error) {
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
