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
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

func bindKubeconfig(fs *pflag.FlagSet) {
	fs.String("kubeconfig", config.DefaultAdminKubeconfig,
		"kubeconfig `file` for talking to the cluster; if it is not given, also KUBECONFIG and ~/.kube/config are looked at")
}

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
		err = withAdvice(err, "no file in "+variable+"="+listed+" exists either")
	}
	return nil, withAdvice(err, "run this on a control plane, or name another file with --kubeconfig or "+variable)
}
