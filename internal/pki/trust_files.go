// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"crypto/x509"
	"io/fs"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// pod returns a component's static Pod; nil if this host has none. An operator may have moved it away to stop the component.
func (t *trust) pod(component string) *corev1.Pod {
	if pod, known := t.pods[component]; known {
		return pod
	}
	path := t.r.Store.Config.Paths.StaticPod(component)
	var pod *corev1.Pod
	data, err := host.ReadIfExists(t.r.Store.Host, path)
	switch {
	case data != nil:
		pod, err = manifests.DecodePod(data)
		err = errors.WithMessage(err, path)
	case err == nil && t.expected(component):
		err = errors.Errorf("there is no %s", path)
	}
	if err != nil {
		t.unchecked("which certificates " + component + " shows and accepts: " + err.Error())
	}
	t.pods[component] = pod
	return pod
}

// expected reports whether this host should have a component; for etcd if the configuration, or else etcd's certificate, says so.
func (t *trust) expected(component string) bool {
	h, n := t.r.Store.Host, t.r.Store.Config
	if sign, err := thisnode.NodeEvidence(h, n.Paths); err == nil && sign == "" {
		return false // only a copy of its files
	}
	if component != manifests.EtcdName {
		return true
	}
	row, local := certs.Find(n, "etcd-server")
	if !local || !t.r.FromOldCertificates {
		return local
	}
	_, err := h.Lstat(t.r.Store.Files(row)[0])
	return !errors.Is(err, fs.ErrNotExist)
}

func (t *trust) flag(component, name string) string { return manifests.FlagOf(t.pod(component), name) }

// named reads the file named in a component's flag.
func (t *trust) named(component, flag string, read func(path string) credential) credential {
	value := t.flag(component, flag)
	if value == "" {
		return credential{}
	}
	return t.inContainer(component, value, read)
}

func (t *trust) inContainer(component, path string, read func(path string) credential) credential {
	onHost, found := thisnode.OnHost(t.pod(component), path)
	if !found {
		return credential{path: path, unread: path + " in the container of " + component + " is not a file of this host"}
	}
	return read(onHost)
}

// certificate reads a file's certificate. A CA stands for the certificate it will sign.
func (t *trust) certificate(path string) credential {
	e := t.parse(path, certs.ParseChain)
	if ca := t.renewed[path]; ca.Cert != nil {
		e.then, e.renewed = ca.Bundle(), true
	}
	return e
}

func (t *trust) authorities(path string) credential { return t.parse(path, certs.ParseCerts) }

func (t *trust) parse(path string, parse func([]byte) ([]*x509.Certificate, error)) credential {
	e := credential{path: path}
	data, err := t.r.Store.Host.ReadFile(path)
	if err == nil {
		e.now, err = parse(data)
		err = errors.Wrap(err, path)
	}
	if err != nil {
		e.unread = err.Error()
	}
	e.then = e.now
	return e
}

// clientOf returns the client certificate of a row's kubeconfig file; the zero end if it has other credentials.
func (t *trust) clientOf(row certs.Spec, path string, data []byte) (e credential) {
	cert, file, err := kubeconfig.ClientCertificate(data)
	switch {
	case errors.Is(err, kubeconfig.ErrOtherCredentials):
		return credential{}
	case err != nil:
		return credential{path: path, unread: path + ": " + err.Error()}
	case file != "":
		e = t.readReferenced(row, path, file, t.certificate)
	default:
		chain, err := certs.ParseChain(cert)
		e = credential{path: path, now: chain, then: chain}
		if err != nil {
			e.unread = path + ": " + err.Error()
		}
	}
	if ca := t.renewed[path]; ca.Cert != nil {
		e.then, e.renewed = ca.Bundle(), true
	}
	return e
}

// readReferenced reads a file named in a row's kubeconfig file at path: by its path in the component's container, or on this host.
func (t *trust) readReferenced(row certs.Spec, path, file string, read func(path string) credential) credential {
	file = kubeconfig.Resolve(path, file)
	if row.UsedBy != "" && row.Name != certs.Kubelet && t.pod(row.UsedBy) != nil {
		return t.inContainer(row.UsedBy, file, read)
	}
	return read(file)
}

// trustedBy returns the CAs that a kubeconfig file trusts, or will trust.
func (t *trust) trustedBy(row certs.Spec, path string, data []byte) credential {
	trusted, file, err := kubeconfig.CAs(data)
	switch {
	case err != nil:
		return credential{path: path, unread: path + ": " + err.Error()}
	case file != "":
		return t.readReferenced(row, path, file, t.authorities)
	case len(trusted) == 0:
		return credential{path: path, unread: path + " names no CA"}
	}
	e := credential{path: path, now: trusted, then: trusted}
	ca, renewed := t.renewed[path]
	if row.Name == certs.Kubelet && t.all {
		if pair, err := t.r.Store.CA(certs.CA); err == nil {
			ca, renewed = pair, true
		}
	}
	if renewed {
		e.then, e.renewed = kubeconfig.WithCAs(trusted, ca.Bundle()), true
	}
	return e
}

// answerTimeout is more than the container runtime needs to list a few containers, even on a slow host.
const answerTimeout = time.Minute

// unreadBy reports whether a file has changed since its reader, a component, started.
func (t *trust) unreadBy(component, path string) bool {
	if component == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	info, err := t.r.Store.Host.Stat(path)
	var running []host.Container
	if err == nil {
		running, err = t.r.Store.Host.Containers(ctx, t.r.Store.Config.CRISocket, metav1.NamespaceSystem, component)
	}
	if err != nil {
		t.unchecked("whether " + component + " has read " + path + " since it changed: " + err.Error())
		return false
	}
	return slices.ContainsFunc(running, func(c host.Container) bool { return c.Created.Before(info.ModTime()) })
}
