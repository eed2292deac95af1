// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestKubeletFileNamesFiles: kubelet.conf may name the files of its CAs and its certificate, from its own directory.
func TestKubeletFileNamesFiles(t *testing.T) {
	const path, text = "/etc/kubernetes/kubelet.conf", `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443", certificate-authority: pki/ca.crt}}]
users: [{name: u, user: {client-certificate: own.pem, client-key: own.pem}}]
`
	s := newStage(t)
	h := s.host
	ca := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour))
	fixture.Put(t, s.root, path, text)
	_, err := ReadKubeletFile(h, path)
	fact.Error(t, err, path, "certificate-authority", "/etc/kubernetes/pki/ca.crt")
	fixture.Put(t, s.root, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(ca.Cert)))
	fixture.Put(t, s.root, "/etc/kubernetes/own.pem", string(certs.EncodeCerts(fixture.Signed(t, ca, "system:node:cp-1", time.Now().Add(time.Hour)).Cert)))
	conf, err := ReadKubeletFile(h, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(conf.Trusted) != 1 || conf.Server != "https://192.0.2.1:6443" {
		t.Errorf("%+v", conf)
	}
	fact.In(t, string(conf.Data), "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/own.pem")
	for _, data := range []string{string(conf.Data), text} {
		leaf, err := (&KubeletFile{Path: path, Data: []byte(data)}).Certificate(h)
		if err != nil || NameIn(leaf) != "cp-1" {
			t.Errorf("%v, %v", leaf, err)
		}
	}
}
