// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// userKubeconfig is the kubeconfig that the user of a command means: the files
// that it consists of.
type userKubeconfig []string

// kubeconfigOfUser is for commands about the cluster: it is the file of
// --kubeconfig, or else what kubectl would take, or else admin.conf.
func kubeconfigOfUser(cmd *cobra.Command) userKubeconfig {
	if path := kubeconfigFlag(cmd); path != "" {
		return userKubeconfig{path}
	}
	return cluster.UserKubeconfig(config.DefaultAdminKubeconfig)
}

// kubeconfigOfNode is for commands about this host's files: what is done to
// them goes by the cluster of this node, wherever the user's kubeconfig leads.
func kubeconfigOfNode(cmd *cobra.Command) userKubeconfig {
	if _, err := os.Lstat(config.DefaultAdminKubeconfig); err == nil && kubeconfigFlag(cmd) == "" {
		return userKubeconfig{config.DefaultAdminKubeconfig}
	}
	return kubeconfigOfUser(cmd)
}

// kubeconfigFlag is what the command line says; the flag's default counts for
// nothing.
func kubeconfigFlag(cmd *cobra.Command) string {
	f := cmd.Flag("kubeconfig")
	if f == nil || !f.Changed {
		return ""
	}
	return f.Value.String()
}

// String is how KUBECONFIG would name it.
func (k userKubeconfig) String() string { return strings.Join(k, string(filepath.ListSeparator)) }

// read returns the whole as one file, and says what to do where there is none.
func (k userKubeconfig) read() ([]byte, error) {
	data, err := cluster.LoadKubeconfig(k...)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	variable := clientcmd.RecommendedConfigPathEnvVar
	if listed := os.Getenv(variable); listed != "" && k.String() == config.DefaultAdminKubeconfig {
		err = fmt.Errorf("%w, nor does any file of %s=%s exist", err, variable, listed)
	}
	return nil, fmt.Errorf("%w; run this on a control plane, or name another file with --kubeconfig or %s", err, variable)
}
