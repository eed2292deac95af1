// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package capi lets the released controllers of Cluster API make, change and repair a cluster of the lab's bare machines, on which
// kubeadm is the link to Slipway. It needs root and the lab's parts.
package capi

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/errors"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/capi/provider"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// labPrefix is the prefix of the lab's name, as in test/e2e.
var labPrefix = cmp.Or(os.Getenv("SLIPWAY_E2E_PREFIX"), "capi-")

const (
	manifest    = "testdata/cluster.yaml"
	namespace   = "default"
	clusterName = "lab"

	machineLimit = 20 * time.Minute // for a machine to become a node, or to go
	pollEvery    = 2 * time.Second
)

// suite is a management cluster.
type suite struct {
	*testing.T
	dial   provider.Dial
	config *rest.Config
	client client.Client

	mu    sync.Mutex
	ended error // of a part beside the test that has ended early
}

func openLab(t *testing.T) *nodes.Lab {
	t.Helper()
	lab, err := nodes.Open(nodes.Options{Name: labPrefix + "lab", BuildLog: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, provider.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// connect returns a client for a cluster.
func (s *suite) connect(kubeconfig []byte) (*rest.Config, client.Client) {
	s.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	s.try(err)
	config.Dial = s.dial
	c, err := client.New(config, client.Options{Scheme: newScheme(s.T)})
	s.try(err)
	return config, c
}

func (s *suite) try(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits for a state, and logs what's missing whenever that changes.
func (s *suite) eventually(what string, limit time.Duration, look func() error) {
	s.Helper()
	started, missing := time.Now(), ""
	for {
		s.try(s.early())
		err := look()
		if err == nil {
			if missing != "" {
				s.Logf("%6.0fs: %s", time.Since(started).Seconds(), what)
			}
			return
		}
		if text := fmt.Sprintf("%.300s", err.Error()); text != missing {
			s.Logf("%6.0fs: %s: not yet: %s", time.Since(started).Seconds(), what, text)
			missing = text
		}
		if time.Since(started) > limit {
			s.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(pollEvery)
	}
}

// creates makes objects. A kind may be too new to be known, or a webhook slow.
func (s *suite) creates(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		s.eventually(object.GetName()+" is there", machineLimit, func() error {
			err := client.IgnoreAlreadyExists(s.client.Create(s.Context(), object))
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
				s.Fatal(err)
			}
			return err
		})
	}
}

// documents reads the objects of a manifest.
func (s *suite) documents(data []byte) (all []client.Object) {
	s.Helper()
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		s.try(yaml.Unmarshal(document, &object.Object))
		all = append(all, object)
	}
	return all
}

// makesCluster asks Cluster API for the cluster.
func (s *suite) makesCluster(version string) {
	s.Helper()
	data, err := os.ReadFile(manifest)
	s.try(err)
	s.creates(s.documents([]byte(strings.ReplaceAll(string(data), "${VERSION}", version)))...)
}

func (s *suite) get(object client.Object, name string) error {
	return s.client.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
}

// goes waits until an object is gone.
func (s *suite) goes(object client.Object, limit time.Duration) {
	s.Helper()
	s.eventually(object.GetName()+" is gone", limit, func() error {
		err := s.client.Get(s.Context(), client.ObjectKeyFromObject(object), object)
		if err == nil {
			return errors.New("it's still there")
		}
		return client.IgnoreNotFound(err)
	})
}
