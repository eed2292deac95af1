// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/pkg/errors"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// UserKubeconfig returns the kubeconfig files the user's commands use, in order: the files in KUBECONFIG, or else ~/.kube/config.
// If none of them exists, it returns the fallback.
func UserKubeconfig(fallback string) []string {
	var there []string
	for _, path := range clientcmd.NewDefaultClientConfigLoadingRules().Precedence {
		// Without HOME, clientcmd looks in the current directory, which may be anyone's.
		anyones := path == clientcmd.RecommendedHomeFile && !filepath.IsAbs(path)
		if path != "" && !anyones && exists(path) {
			there = append(there, path)
		}
	}
	if len(there) == 0 {
		return []string{fallback}
	}
	return there
}

// exists is also true for files that can't be examined: skipping these could lead to a different cluster than the user means.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// LoadKubeconfig merges the files by clientcmd's rules: the first definition of anything counts, and paths are relative to their
// file. It returns only the current context, with the contents of certificate files.
func LoadKubeconfig(paths ...string) ([]byte, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: paths}
	if len(paths) == 1 {
		rules.ExplicitPath = paths[0] // this file must exist
	}
	merged, err := rules.Load()
	if err != nil {
		return nil, unreadable(paths, err)
	}
	if merged.CurrentContext == "" {
		return nil, errors.New("no current-context is set; `kubectl config use-context` sets it")
	}
	if err := clientcmdapi.MinifyConfig(merged); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(merged); err != nil {
		return nil, err
	}
	return clientcmd.Write(*merged)
}

// unreadable says which file is malformed or can't be opened, without the decoder's message, which may quote a credential.
func unreadable(paths []string, err error) error {
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
		return err
	}
	malformed := errors.New("it is not a kubeconfig in YAML form")
	for _, path := range paths {
		_, err := clientcmd.LoadFromFile(path)
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
			return err
		}
		if err != nil && len(paths) > 1 {
			return errors.WithMessage(malformed, path)
		}
	}
	return malformed
}

// restConfig returns the connection settings of the kubeconfig at path. No error repeats a URL, which may hold a password.
func restConfig(path string, kubeconfig []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig in YAML form") // the decoder may quote a credential
	}
	for name, c := range file.Clusters {
		c.LocationOfOrigin = path
		if c.ProxyURL != "" && !isProxy(c.ProxyURL) {
			return nil, errors.Errorf("the proxy-url of cluster %q is not an http, https or socks5 URL", name)
		}
	}
	for _, u := range file.AuthInfos {
		u.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// isProxy reports whether clientcmd accepts the text as a proxy.
func isProxy(text string) bool {
	u, err := url.Parse(text)
	return err == nil && slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)
}

// adminsGroup is the group of admin.conf's user. Its rights come from a binding, unlike those of system:masters in super-admin.conf.
const adminsGroup = "kubeadm:cluster-admins"

func adminBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: adminsGroup},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: adminsGroup}},
	}
}

// EnsureAdmin returns nil once the API server applies the binding.
func (r *Real) EnsureAdmin(ctx context.Context) error {
	r.adminMu.Lock()
	defer r.adminMu.Unlock()
	if r.adminDone {
		return nil
	}
	admin, err := r.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	if err := r.bindAdmins(ctx, admin); err != nil {
		return err
	}
	r.adminDone = true
	return nil
}

func (r *Real) bindAdmins(ctx context.Context, admin *conn) error {
	binding, err := want(adminBinding())
	if err != nil {
		return err
	}
	err = admin.ensure(ctx, defaultPolicy(), binding)
	if !apierrors.IsForbidden(err) {
		return err
	}
	super, noSuper := r.dial(r.options.SuperAdmin)
	switch {
	case noSuper == nil:
		defer super.client.Client.CloseIdleConnections() // not needed again
		if err := super.ensure(ctx, defaultPolicy(), binding); err != nil {
			return err
		}
	case !errors.Is(noSuper, fs.ErrNotExist):
		return noSuper
	}
	// The authorizer hasn't seen the new binding yet; or, without super-admin.conf, an old one: the server may be starting.
	limit := settleTimeout
	if noSuper == nil {
		limit = startTimeout
	}
	err = admin.ensure(ctx, orForbidden(policy(pollDelay), limit), binding)
	if apierrors.IsForbidden(err) && noSuper != nil {
		err = errors.Wrapf(err, "%s, which could give %s its rights, is missing", r.options.SuperAdmin, r.options.Kubeconfig)
		return fault.WithRemedy(err, "make it with `slipway init phase kubeconfig super-admin`")
	}
	return err
}
