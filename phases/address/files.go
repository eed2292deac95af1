// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/kubelet"
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

// files writes kubeconfig files and the kubelet's settings. The next start of the kubelet reads them, and systemd its unit's.
func (m *Move) files(ctx context.Context, env *step.Env) error {
	if err := m.writeFiles(env); err != nil {
		return err
	}
	units, err := thisnode.UnitFiles(env.Host)
	if err != nil || !slices.ContainsFunc(kubeletFiles(env), func(path string) bool { return slices.Contains(units, path) }) {
		return err
	}
	return kubelet.EnsureUnitIsCurrent(ctx, env)
}

func (m *Move) writeFiles(env *step.Env) error {
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
		return withNodeIP(text, m.NodeIP)
	case m.Server == "" || !slices.Contains(sharedFiles(env), path):
		return text, nil
	}
	server, err := kubeconfig.URL([]byte(text))
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

var (
	// nodeIPs finds the flag in both forms that the kubelet takes.
	nodeIPs = lazyregexp.New(`(--node[-_]ip)(?:=|[ \t]+[^-\s"'\\])[^\s"'\\]*`)
	// flagsBegin ends where the flags begin in kubeadm-flags.env, with quotes or without.
	flagsBegin = lazyregexp.New(`(?m)^[ \t]*KUBELET_KUBEADM_ARGS=["']?`)
)

// withNodeIP sets the flag in the text of kubeadm-flags.env. It fails if the kubelet wouldn't get the value from there.
func withNodeIP(text, value string) (string, error) {
	is := func(f thisnode.KubeletFlag) bool { return f.Name == nodeIPFlag }
	if slices.ContainsFunc(thisnode.KubeadmFlags([]byte(text)), is) {
		text = nodeIPs().ReplaceAllString(text, "${1}="+value)
	} else if at := flagsBegin().FindStringIndex(text); at != nil {
		flag, rest := "--"+nodeIPFlag+"="+value, text[at[1]:]
		if rest != "" && !strings.ContainsAny(rest[:1], "\"'\n") {
			flag += " "
		}
		text = text[:at[1]] + flag + rest
	}
	set := slices.DeleteFunc(thisnode.KubeadmFlags([]byte(text)), func(f thisnode.KubeletFlag) bool { return !is(f) })
	if len(set) == 0 || set[len(set)-1].Value != value {
		return "", fault.New("--node-ip="+value+" cannot be added to the kubelet's flags here",
			`write it there, as in KUBELET_KUBEADM_ARGS="--node-ip=`+value+`", then run the same command again`)
	}
	return text, nil
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
