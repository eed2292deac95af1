// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/slipway-k8s/slipway/internal/fault"
)

func newRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func coreDNSList(t *testing.T, architecture string) *List {
	t.Helper()
	dir := t.TempDir()
	tag, err := name.NewTag("coredns:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "a.tar"), tag, testImage(t, architecture, 5, 4000)); err != nil {
		t.Fatal(err)
	}
	l := listOf(ListedPart{Name: "registry.k8s.io/coredns/coredns:v1.14.6", Type: Image, File: "a.tar"})
	l.Architecture = architecture
	return save(t, l, dir)
}

var plain = Access{PlainHTTP: true}

// pulled returns the image a host of the platform gets from a registry.
func pulled(t *testing.T, ref, architecture string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func checkDigest(t *testing.T, image v1.Image, want v1.Hash) {
	t.Helper()
	if got, err := image.Digest(); err != nil || got != want {
		t.Errorf("it is %s, not %s (%v)", got, want, err)
	}
}

// TestPush: images can be pulled by name, and the pushed bundle is the same index, with its signature.
func TestPush(t *testing.T) {
	host := newRegistry(t)
	key, keys := newKey(t)
	b := open(t, create(t, testList(t), func(c *Create) { c.Sign = key }), keys)
	if err := b.Push(t.Context(), host+"/k8s", plain, t.Logf); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.index.images() {
		image := pulled(t, strings.Replace(p.Name, "registry.k8s.io", host+"/k8s", 1), "amd64")
		checkDigest(t, image, p.Digest)
		layers, err := image.Layers()
		if err != nil || len(layers) == 0 {
			t.Fatal(err)
		}
		content, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			t.Error(err)
		}
		content.Close()
	}
	tag, err := name.NewTag(host + "/k8s/slipway-bundle:v1.37.2-linux-amd64")
	if err != nil {
		t.Fatal(err)
	}
	there, err := remote.Get(tag)
	if err != nil || !bytes.Equal(there.Manifest, b.rawLayout) {
		t.Fatalf("the bundle's index is another: %v", err)
	}
	referrers, err := remote.Referrers(tag.Digest(there.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	m, err := referrers.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("there is no signature: %v, %v", m, err)
	}
	signature, err := remote.Image(tag.Digest(m.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signature.Manifest()
	if err != nil || manifest.ArtifactType != string(signatureType) || manifest.Layers[0].Digest != digestOf(b.signature) {
		t.Errorf("it is another signature: %v, %v", manifest, err)
	}
	// A second push changes nothing, and succeeds.
	if err := b.Push(t.Context(), host+"/k8s/", plain, t.Logf); err != nil {
		t.Error(err)
	}
}

// TestPushPlatforms: bundles for two architectures share their tags, in any order and repeatedly.
func TestPushPlatforms(t *testing.T) {
	host := newRegistry(t)
	bundles := map[string]*Bundle{}
	for _, architecture := range []string{"amd64", "arm64"} {
		bundles[architecture] = open(t, create(t, coreDNSList(t, architecture)), Keys{})
	}
	for _, architecture := range []string{"amd64", "arm64", "amd64", "arm64"} {
		if err := bundles[architecture].Push(t.Context(), host, plain, t.Logf); err != nil {
			t.Fatal(err)
		}
	}
	for architecture, b := range bundles {
		for _, path := range []string{"/coredns:v1.14.6", "/coredns/coredns:v1.14.6"} {
			checkDigest(t, pulled(t, host+path, architecture), b.index.Parts[0].Digest)
		}
	}
	tag, err := name.NewTag(host + "/coredns:v1.14.6")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := index.IndexManifest(); err != nil || len(m.Manifests) != 2 {
		t.Errorf("the tag has %d images, %v", len(m.Manifests), err)
	}
}

// TestPushRefuses: nothing is sent without TLS, and nothing damaged.
func TestPushRefuses(t *testing.T) {
	host := newRegistry(t)
	path := create(t, coreDNSList(t, "amd64"))
	b := open(t, path, Keys{})
	err := b.Push(t.Context(), host, Access{}, t.Logf)
	if refused(t, err, "HTTPS"); !strings.Contains(fault.Remedy(err), "--plain-http") {
		t.Errorf("it is not said what to do: %q", fault.Remedy(err))
	}
	refused(t, b.Push(t.Context(), "https://"+host, plain, t.Logf), "registry")
	refused(t, b.Push(t.Context(), host+"/UPPER", plain, t.Logf), "UPPER")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-3000] ^= 1
	dir := t.TempDir()
	writeFile(t, dir, "damaged.tar", data)
	refused(t, open(t, filepath.Join(dir, "damaged.tar"), Keys{}).Push(t.Context(), host, plain, t.Logf), "is damaged")
	tag, err := name.NewTag(host + "/coredns:v1.14.6")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Get(tag); err == nil {
		t.Error("something was pushed")
	}
}

// TestPushTLS: a private CA is trusted only where it's named.
func TestPushTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that don't trust it
	server.StartTLS()
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	dir := t.TempDir()
	writeFile(t, dir, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	writeFile(t, dir, "empty.crt", nil)
	b := open(t, create(t, coreDNSList(t, "amd64")), Keys{})
	if err := b.Push(t.Context(), host, Access{CAFile: filepath.Join(dir, "ca.crt")}, t.Logf); err != nil {
		t.Error(err)
	}
	if b.Push(t.Context(), host, Access{}, t.Logf) == nil {
		t.Error("an unknown CA is trusted")
	}
	refused(t, b.Push(t.Context(), host, Access{CAFile: filepath.Join(dir, "empty.crt")}, t.Logf), "empty.crt")
}
