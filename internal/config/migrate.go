// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"

	"github.com/pkg/errors"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Migrate converts a file to the latest API version with all defaults filled in, like `config migrate`. It leaves component
// configurations alone.
func Migrate(ctx context.Context, src Source, opts Options) ([]byte, []string, error) {
	d := readAll(&src, opts.Experimental)
	opts.Existing = true
	m := migration{
		init:    d.init != nil || d.cluster != nil,
		kubelet: copyOf(d.kubelet), kubeProxy: copyOf(d.kubeProxy),
	}
	d.complete(ctx, opts)
	d.requireAny(src)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	if m.init {
		if err := m.prepareInit(d, opts); err != nil {
			return nil, d.warningTexts(), err
		}
	}
	data, err := marshal(m.documents(d)...)
	return data, d.warningTexts(), err
}

// migration is the file's content before it was completed.
type migration struct {
	init      bool // it had a document of init
	kubelet   *kubelet.KubeletConfiguration
	kubeProxy *kubeproxy.KubeProxyConfiguration
}

// prepareInit removes the placeholder address, which the host that uses the file should determine, and generates missing tokens.
func (m migration) prepareInit(d *documents, opts Options) error {
	if d.placeholder {
		d.init.LocalAPIEndpoint.AdvertiseAddress = ""
	}
	return d.nameTokens(opts)
}

func (m migration) documents(d *documents) []any {
	var out []any
	if m.init {
		out = append(out, d.init, d.cluster)
	}
	if d.join != nil {
		out = append(out, d.join)
	}
	if d.reset != nil {
		out = append(out, d.reset)
	}
	if d.upgrade != nil {
		out = append(out, d.upgrade)
	}
	if m.kubelet != nil {
		out = append(out, m.kubelet)
	}
	if m.kubeProxy != nil {
		out = append(out, m.kubeProxy)
	}
	return out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// nameTokens generates missing tokens, because a migrated file names them.
func (d *documents) nameTokens(opts Options) error {
	for i := range d.init.BootstrapTokens {
		t := &d.init.BootstrapTokens[i]
		if t.Token != "" {
			continue
		}
		id, secret, err := opts.NewToken()
		if err != nil {
			return errors.Wrap(err, "generating a bootstrap token")
		}
		t.Token = id + "." + secret
	}
	return nil
}
