// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// contractLabels name the versions of Cluster API's own kinds for each version of its contract, as its kustomization does.
var contractLabels = map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}

// CRDs returns the definitions of the controllers' objects. The API server converts them with the controllers' webhooks, whose
// certificate is signed by ca.
func CRDs(source string, ca []byte) ([]client.Object, error) {
	var all []client.Object
	for _, c := range Controllers {
		files, err := filepath.Glob(filepath.Join(source, c.dir, "config", "crd", "bases", "*.yaml"))
		if err != nil || len(files) == 0 {
			return nil, errors.Errorf("%s has no definitions of the objects of %s", source, c.Name)
		}
		for _, file := range files {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := readInto(file, crd); err != nil {
				return nil, err
			}
			for label, version := range contractLabels {
				crd.Labels = with(crd.Labels, label, version)
			}
			url := c.url("/convert")
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca},
					ConversionReviewVersions: []string{"v1"},
				},
			}
			all = append(all, crd)
		}
	}
	return all, nil
}

func with(labels map[string]string, name, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[name] = value
	return labels
}

func readInto(file string, object any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return errors.Wrap(err, "cannot read an object of Cluster API")
	}
	return errors.Wrapf(yaml.UnmarshalStrict(data, object), "cannot read %s", file)
}

func (c Controller) url(path string) string {
	return fmt.Sprintf("https://%s:%d%s", host, c.webhookPort(), path)
}

// Webhooks returns the registrations of the webhooks that default and validate the controllers' objects.
func Webhooks(source string, ca []byte) ([]client.Object, error) {
	var all []client.Object
	for _, c := range Controllers {
		file := filepath.Join(source, c.dir, "config", "webhook", "manifests.yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the webhooks")
		}
		for document := range bytes.SplitSeq(data, []byte("---\n")) {
			registration, err := c.registration(document, ca)
			if err != nil {
				return nil, errors.Wrapf(err, "cannot read %s", file)
			}
			if registration != nil {
				all = append(all, registration)
			}
		}
	}
	return all, nil
}

// registration reads a registration and points it to the controller; nil for an empty document.
func (c Controller) registration(document []byte, ca []byte) (client.Object, error) {
	switch text := string(document); {
	case strings.Contains(text, "kind: MutatingWebhookConfiguration\n"):
		r := &admissionv1.MutatingWebhookConfiguration{}
		err := yaml.UnmarshalStrict(document, r)
		r.Name = "capi-" + c.Name
		for i := range r.Webhooks {
			c.redirect(&r.Webhooks[i].ClientConfig, ca)
		}
		return r, err
	case strings.Contains(text, "kind: ValidatingWebhookConfiguration\n"):
		r := &admissionv1.ValidatingWebhookConfiguration{}
		err := yaml.UnmarshalStrict(document, r)
		r.Name = "capi-" + c.Name
		for i := range r.Webhooks {
			c.redirect(&r.Webhooks[i].ClientConfig, ca)
		}
		return r, err
	case strings.TrimSpace(text) != "":
		return nil, errors.Errorf("it has an unknown object:\n%s", text)
	}
	return nil, nil
}

// redirect replaces the Service in front of the controller's Pods.
func (c Controller) redirect(config *admissionv1.WebhookClientConfig, ca []byte) {
	if config.Service != nil && config.Service.Path != nil {
		url := c.url(*config.Service.Path)
		*config = admissionv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
}
