// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// stopGrace is how long a component may take to stop: as long as its static Pod
// gives it by default (terminationGracePeriodSeconds).
const stopGrace = 30 * time.Second

// apiServerGrace is how long an API server may take. It stops listening and
// cleans up within half a second, then finishes the requests that it has, 99 %
// of which take less than a second (the service level objective of Kubernetes).
// After that only watches are left, which never end by themselves: without this
// limit the API is away for all of stopGrace. Clients open them again.
const apiServerGrace = 2 * time.Second

// restartPhases put the renewed certificates to use. A kubelet whose certificate
// has expired comes first, because the kubelet restarts the components.
func restartPhases() []Phase {
	return []Phase{
		checkTrust(),
		{Name: "kubelet", Summary: "Renew an expired kubelet.conf", Run: repairKubelet},
		{Name: "restart", Summary: "Restart the components whose files have changed", Run: restartChanged},
		{Name: "kubelet-finalize", Summary: "Let the kubelet rotate its certificate", Run: finishKubelet},
		{Name: "etcd", Summary: "Restart etcd if it had to wait for other members", Run: restartEtcdLate, Skip: unlessLocalEtcd},
	}
}

// restartChanged compares the times of files and containers, so that the same
// command finishes a run that was interrupted.
//
// The API server stops before etcd. Each waits for the other when it stops: the
// API server gives up its lease in etcd, and etcd waits seven seconds for the
// API server's watches to end. Then both start together, and the API is away as
// briefly as can be. What can do nothing without it is restarted after it.
func restartChanged(ctx context.Context, env *Env) error {
	if err := endBackOff(ctx, env); err != nil {
		return err
	}
	first := []string{manifests.APIServerName}
	if unlessLocalEtcd(env) == "" {
		var kept *quorumError
		switch _, err := mayStopEtcd(ctx, env); {
		case errors.As(err, &kept): // the others do not depend on it
			ui.WarnError(env.UI, errors.WithMessage(err, "etcd was not restarted yet"))
		case err != nil:
			return err
		default:
			first = append(first, manifests.EtcdName)
		}
	}
	if err := restartTogether(ctx, env, first...); err != nil {
		return err
	}
	return restartTogether(ctx, env, manifests.ControllerManagerName, manifests.SchedulerName)
}

// endBackOff restarts a kubelet that delays the start of a component which
// crashed, as one does with an expired certificate: by up to five minutes
// (CrashLoopBackOff). Only a restart makes the kubelet forget that.
func endBackOff(ctx context.Context, env *Env) error {
	kubelet, err := env.Host.Unit(ctx, kubeletUnit)
	switch {
	case errors.Is(err, host.ErrNoSystemd):
		return nil
	case err != nil || kubelet.ActiveSince.IsZero():
		return err
	}
	var crashed []string
	for _, component := range manifests.Components(env.Config) {
		running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
		if err != nil {
			return err
		}
		changed, err := credentialsChanged(env, component)
		if err != nil {
			return err
		}
		if len(running) == 0 && kubelet.ActiveSince.Before(changed) {
			crashed = append(crashed, component)
		}
	}
	if len(crashed) == 0 {
		return nil
	}
	env.UI.Printf("Restarting the kubelet, so that it starts %s without delay", strings.Join(crashed, ", "))
	if err := restartKubelet(ctx, env); err != nil {
		return err
	}
	return waitKubelet(ctx, env)
}

// restartTogether stops what is stale of the components, one after another,
// and waits for all of them.
func restartTogether(ctx context.Context, env *Env, components ...string) error {
	changed := make([]time.Time, len(components))
	for i, component := range components {
		var err error
		if changed[i], err = stopStale(ctx, env, component); err != nil {
			return err
		}
	}
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	failure := strings.Join(components, " and ") + " did not become healthy after the restart"
	return diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, component := range components {
			group.Go(func() error {
				if err := awaitRestarted(ctx, env, component, changed[i]); err != nil {
					return err
				}
				return waitComponent(ctx, env, component)
			})
		}
		return group.Wait()
	})
}

// stopStale stops the containers of a component that were created before its
// files changed, and returns when that was.
func stopStale(ctx context.Context, env *Env, component string) (changed time.Time, err error) {
	stale, changed, err := staleContainers(ctx, env, component)
	if err != nil {
		return changed, err
	}
	for _, c := range stale {
		env.UI.Printf("Restarting %s", component)
		if err := env.Host.StopContainer(ctx, env.Config.CRISocket, c.ID, graceOf(env, component)); err != nil {
			return changed, err
		}
	}
	// Also of a component that crashed with its old certificate. If this fails,
	// the restart only takes longer.
	_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return changed, nil
}

// graceOf is how long a component may take to stop. An API server that was told
// how to shut down (--shutdown-delay-duration and others), such as to serve
// until load balancers send nothing more to it, has the time to do so:
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/
func graceOf(env *Env, component string) time.Duration {
	if component != manifests.APIServerName {
		return stopGrace
	}
	pod, err := env.Host.ReadFile(thisnode.StaticPodPath(env.Config, component))
	if err != nil || strings.Contains(string(pod), "--shutdown-") {
		return stopGrace
	}
	return apiServerGrace
}

// staleContainers are those of a component that were created before its files
// changed.
func staleContainers(ctx context.Context, env *Env, component string) (stale []host.Container, changed time.Time, err error) {
	if changed, err = credentialsChanged(env, component); err != nil {
		return nil, changed, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(changed) }), changed, err
}

// awaitRestarted waits for a container that was created after the component's
// files changed.
func awaitRestarted(ctx context.Context, env *Env, component string, changed time.Time) error {
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component,
		func(c host.Container) bool { return !c.Created.Before(changed) })
	return errors.Wrapf(err, "the kubelet has not restarted %s; see `journalctl -u kubelet` and /var/log/pods", component)
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

// repairKubelet gives a kubelet whose client certificate has expired a new one,
// which it replaces by one that it requests as soon as the API answers:
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/troubleshooting-kubeadm/#kubelet-client-cert
//
// An interrupted run leaves a valid kubelet.conf, and a kubelet that has not read
// it yet, or that still finds its expired certificate.
func repairKubelet(ctx context.Context, env *Env) error {
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
			"have the owner of the CA sign a new one, then restart the kubelet", env.pki().Files(row)[0])
	}
	key, err := env.pki().NewKey()
	if err != nil {
		return err
	}
	cert, err := certs.Issue(certs.Renewal(row, old), env.Config, ca, key, env.Host.Now(), rand.Reader)
	if err != nil {
		return err
	}
	env.UI.Printf("Replacing the kubelet's client certificate, which has expired")
	return env.pki().Replace(row, certs.Pair{Cert: cert, Key: key})
}

// hasExpired reports whether the kubelet's certificate at path has expired. A
// file without a certificate is left to the kubelet.
func hasExpired(env *Env, path string) bool {
	data, err := env.Host.ReadFile(path)
	var expired *thisnode.ExpiredError
	return err == nil && errors.As(thisnode.ClientCertificateCheck(env.Host, path, "")(data), &expired)
}

// finishKubelet does nothing if kubelet.conf already refers to the certificate
// that the kubelet rotates.
func finishKubelet(ctx context.Context, env *Env) error {
	if _, err := env.Host.Lstat(thisnode.KubeletConf(env.Config)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return runEnableClientCertRotation(ctx, env)
}
