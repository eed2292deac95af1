// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// certificates keep their keys. The API server and etcd read them again by themselves.
func (m *Move) certificates(env *step.Env) error {
	rows, err := env.PKI().ForAddresses(m.From)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := env.PKI().Readdress(row, m.From, m.To); err != nil {
			return err
		}
	}
	return nil
}

// kubeletFiles are the files with the kubelet's settings that may have the node's address.
func kubeletFiles(env *step.Env) []string {
	files := []string{env.Config.Paths.KubeletKubeconfig(), env.Config.Paths.KubeletFlags(), env.Config.Paths.KubeletConfig()}
	for _, flag := range thisnode.AdministratorsFlags(env.Host) {
		if flag.Name == nodeIPFlag && !slices.Contains(files, flag.From) {
			files = append(files, flag.From)
		}
	}
	return files
}

const nodeIPFlag = "node-ip"

// files writes kubeconfig files and the kubelet's settings.
func (m *Move) files(_ context.Context, env *step.Env) error {
	paths := kubeletFiles(env)
	for _, row := range certs.Specs(env.Config) {
		if path := env.PKI().Files(row)[0]; row.Kubeconfig != "" && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		text, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		if text == nil {
			continue
		}
		wanted, err := m.file(env, path, string(text))
		if err != nil {
			return errors.Wrap(err, path)
		}
		if wanted == string(text) {
			continue
		}
		info, err := env.Host.Lstat(path)
		if err != nil {
			return err
		}
		env.UI.Printf("Writing the address to %s", path)
		if err := ownership.Rewrite(env.Host, path, []byte(wanted), info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) file(env *step.Env, path, text string) (string, error) {
	text = m.ReplaceAddresses(text)
	switch {
	case path == env.Config.Paths.KubeletFlags() && m.NodeIP != "":
		return withFlag(text, nodeIPFlag, m.NodeIP), nil
	case m.Server == "" || !slices.Contains(sharedFiles(env), path):
		return text, nil
	}
	server, _, err := kubeconfig.Server([]byte(text))
	if err != nil || server == serverURL(m.Server) {
		return text, err
	}
	data, err := kubeconfig.AtServer([]byte(text), serverURL(m.Server))
	return string(data), err
}

func serverURL(endpoint string) string { return "https://" + endpoint }

// sharedFiles are the kubeconfig files of clients that don't use this host's own API server.
func sharedFiles(env *step.Env) (files []string) {
	for _, row := range certs.Specs(env.Config) {
		if row.Kubeconfig != "" && row.UsedBy == "" {
			files = append(files, env.PKI().Files(row)[0])
		}
	}
	if !env.Config.ControlPlane {
		files = append(files, env.Config.Paths.KubeletKubeconfig())
	}
	return files
}

// withFlag sets a flag in a line KUBELET_KUBEADM_ARGS="--name=value --other".
func withFlag(line, name, value string) string {
	flag := "--" + name + "="
	if at := strings.Index(strings.ReplaceAll(line, "_", "-"), flag); at >= 0 {
		end := at + len(flag)
		rest := strings.TrimLeftFunc(line[end:], func(r rune) bool { return !strings.ContainsRune(" \"'\n", r) })
		return line[:end] + value + rest
	}
	before, after, found := strings.Cut(line, `"`)
	if !found {
		return line
	}
	if after != "" && after[0] != '"' {
		value += " "
	}
	return before + `"` + flag + value + after
}

// restartKubelet restarts a kubelet that a swap of its components hasn't restarted.
func (m *Move) restartKubelet(ctx context.Context, env *step.Env) error {
	if err := node.RestartStaleKubelet(ctx, env, kubeletFiles(env)...); err != nil {
		return err
	}
	if err := node.WaitKubelet(ctx, env); err != nil {
		return err
	}
	return errors.WithMessage(env.Cluster.AwaitReport(ctx, env.Config.Name, env.Host.Now()), "wait for the kubelet's report")
}
