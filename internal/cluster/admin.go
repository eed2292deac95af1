// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io/fs"

	"github.com/pkg/errors"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// adminsGroup is the group of admin.conf's user. It gets its rights from a binding and can lose them, unlike system:masters, the
// group of super-admin.conf.
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
	err = admin.ensure(ctx, usual(), binding)
	if !apierrors.IsForbidden(err) {
		return err
	}
	super, noSuper := r.dial(r.options.SuperAdmin)
	switch {
	case noSuper == nil:
		defer super.client.Client.CloseIdleConnections() // not needed again
		if err := super.ensure(ctx, usual(), binding); err != nil {
			return err
		}
	case !errors.Is(noSuper, fs.ErrNotExist):
		return noSuper
	}
	// The authorizer hasn't seen the new binding yet; or, without super-admin.conf, an old binding: the server may still be
	// starting.
	err = admin.ensure(ctx, orForbidden(policy(pollDelay), settleTime), binding)
	if apierrors.IsForbidden(err) && noSuper != nil {
		err = errors.Wrapf(err, "%s, which could give %s its rights, is missing", r.options.SuperAdmin, r.options.Kubeconfig)
		return fault.WithRemedy(err, "make it with `slipway init phase kubeconfig super-admin`")
	}
	return err
}
