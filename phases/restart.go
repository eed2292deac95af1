// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"io/fs"
	"slices"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// stopGrace is how long a component may take to end: that of its static Pod,
// by default (terminationGracePeriodSeconds).
const stopGrace = 30 * time.Second

// restartPhases bring into use what renew has written: a kubelet whose
// certificate has expired gets one first, for it is the kubelet that starts
// the components again.
func restartPhases() []Phase {
	return []Phase{
		{Name: "kubelet", Summary: "Renew an expired kubelet.conf", Run: mendKubelet},
		{Name: "restart", Summary: "Restart the components whose files have changed", Run: restartChanged},
		{Name: "kubelet-finalize", Summary: "Let the kubelet rotate its certificate again", Run: finishKubelet},
		{Name: "etcd", Summary: "Restart etcd if that had to wait for other members", Run: restartEtcdLate, Skip: unlessLocalEtcd},
	}
}

// restartChanged goes by the times of the files, so that the same command
// finishes a run that was cut off.
func restartChanged(ctx context.Context, env *Env) error {
	for _, component := range manifests.Components(env.Config) {
		err := restartComponent(ctx, env, component)
		var kept *quorumError
		if errors.As(err, &kept) { // the others do not depend on it
			env.UI.Warnf("etcd is not restarted yet: %v", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func restartComponent(ctx context.Context, env *Env, component string) error {
	stale, changed, err := staleContainers(ctx, env, component)
	if err != nil {
		return err
	}
	if component == manifests.EtcdName && len(stale) > 0 {
		if err := awaitPeers(ctx, env); err != nil {
			return err
		}
	}
	for _, c := range stale {
		env.UI.Printf("Restarting %s", component)
		if err := env.Host.StopContainer(ctx, env.Config.CRISocket, c.ID, stopGrace); err != nil {
			return err
		}
	}
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	return watched(ctx, env, limit, nodeTarget(env.Config), component+" did not come back", func(ctx context.Context) error {
		if err := awaitRestarted(ctx, env, component, changed); err != nil {
			return err
		}
		return waitComponent(ctx, env, component)
	})
}

// staleContainers are those of a component that were made before its files
// changed.
func staleContainers(ctx context.Context, env *Env, component string) (stale []host.Container, changed time.Time, err error) {
	if changed, err = credentialsChanged(env, component); err != nil {
		return nil, changed, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(changed) }), changed, err
}

// awaitRestarted waits for a container that was made after its files changed.
func awaitRestarted(ctx context.Context, env *Env, component string, changed time.Time) error {
	err := poll(ctx, func(ctx context.Context) error {
		now, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
		fresh := slices.ContainsFunc(now, func(c host.Container) bool { return !c.Created.Before(changed) })
		if err == nil && !fresh {
			err = errors.New("it does not run")
		}
		return err
	})
	return errors.Wrapf(err, "the kubelet has not started %s again; look at `journalctl -u kubelet` and in /var/log/pods", component)
}

// credentialsChanged is when the newest of the component's files was written.
func credentialsChanged(env *Env, component string) (time.Time, error) {
	var newest time.Time
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy != component {
			continue
		}
		info, err := env.Host.Lstat(env.pki().Files(row)[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return newest, err
		case info.ModTime().After(newest):
			newest = info.ModTime()
		}
	}
	return newest, nil
}

// mendKubelet gives a kubelet whose client certificate has expired a new one,
// which it exchanges for one of its own as soon as the API answers:
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert
//
// A run that is cut off leaves a kubelet.conf that is good, and a kubelet that
// has not read it, or that finds its expired certificate.
func mendKubelet(ctx context.Context, env *Env) error {
	row, _ := certs.Find(env.Config, certs.Kubelet)
	path := env.pki().Files(row)[0]
	old, err := env.pki().Current(row)
	if err != nil || old == nil {
		return err
	}
	expired := !env.Host.Now().Before(old.NotAfter)
	if expired {
		if err := replaceKubeletCertificate(env, row, old); err != nil {
			return err
		}
	}
	pem := thisnode.KubeletClientPEM(env.Host, env.Config)
	if expired = expired || hasExpired(env, pem); expired {
		// While this is there, the kubelet takes it for its own.
		if err := env.Host.Remove(pem); err != nil {
			return err
		}
	}
	stale, err := kubeletIsStale(ctx, env, path)
	if err != nil || !expired && !stale {
		return err
	}
	env.UI.Printf("Restarting the kubelet, so that it reads %s", path)
	if err := restartKubelet(ctx, env); err != nil {
		return err
	}
	return waitKubelet(ctx, env)
}

func replaceKubeletCertificate(env *Env, row certs.Spec, old *x509.Certificate) error {
	ca, err := env.pki().CA(row.CA)
	if err != nil {
		return err
	}
	if ca.Key == nil {
		return errors.Errorf("%s: its certificate has expired, and the key of the CA is not on this host; "+
			"have the CA's owner sign a new one, and restart the kubelet", env.pki().Files(row)[0])
	}
	key, err := env.pki().NewKey()
	if err != nil {
		return err
	}
	cert, err := certs.Issue(certs.Renewal(row, old), env.Config, ca, key, env.Host.Now(), rand.Reader)
	if err != nil {
		return err
	}
	env.UI.Printf("The kubelet's client certificate has expired: giving it a new one")
	return env.pki().Replace(row, certs.Pair{Cert: cert, Key: key})
}

// hasExpired tells of a certificate of the kubelet's; a file that holds none is
// the kubelet's own matter.
func hasExpired(env *Env, path string) bool {
	data, err := env.Host.ReadFile(path)
	var expired *thisnode.ExpiredError
	return err == nil && errors.As(thisnode.ClientCertificateCheck(env.Host, path, "")(data), &expired)
}

// finishKubelet does nothing for a kubelet.conf that points at the kubelet's
// own certificate already.
func finishKubelet(ctx context.Context, env *Env) error {
	if _, err := env.Host.Lstat(thisnode.KubeletConf(env.Config)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return runEnableClientCertRotation(ctx, env)
}
