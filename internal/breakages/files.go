// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

type StaticPod struct {
	Where string     // for people: /etc/kubernetes/manifests/dns.yaml on cp-1
	Pod   corev1.Pod // with the name of its node
	// Reported is set if a worker's kubelet reports it to the API: it may say anything, and matters only to that worker's upgrade.
	Reported bool
}

// staticPods finds static Pods that refer to API objects. The kubelet 1.37 never starts them; before, only with feature gate
// PreventStaticPodAPIReferences off (#140226).
func (c *checker) staticPods() {
	if !c.reaches("1.37") {
		return
	}
	for _, p := range c.StaticPods {
		object := apiReference(p.Pod.Spec)
		if object == "" || c.passed(p.Pod.Spec.NodeName) {
			continue
		}
		f := fault.Finding{Name: "static-pod-api-reference", Severity: fault.Error, Subject: p.Where, Field: object,
			Message: fmt.Sprintf("%s: the kubelet 1.37 does not start this static Pod, because it refers to a %s", p.Where, object),
			Remedy:  "put the needed values into the manifest or into files of the node, or run it as a DaemonSet"}
		if p.Reported {
			f.Severity = fault.Warning
		}
		c.add(f)
	}
}

// apiReference returns the kind of an API object that a Pod needs; empty if it needs none.
func apiReference(spec corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return "ServiceAccount"
	case len(spec.ImagePullSecrets) > 0:
		return "Secret"
	case len(spec.ResourceClaims) > 0:
		return "ResourceClaim"
	}
	for _, v := range spec.Volumes {
		if kind := volumeReference(v); kind != "" {
			return kind
		}
	}
	for _, container := range containersOf(spec) {
		for _, from := range container.EnvFrom {
			if from.ConfigMapRef != nil {
				return "ConfigMap"
			}
			if from.SecretRef != nil {
				return "Secret"
			}
		}
		for _, env := range container.Env {
			if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
				return "ConfigMap"
			}
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				return "Secret"
			}
		}
	}
	return ""
}

// containersOf returns all of a Pod's containers, including init and debugging containers.
func containersOf(spec corev1.PodSpec) []corev1.Container {
	list := append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...)
	for _, e := range spec.EphemeralContainers {
		list = append(list, corev1.Container(e.EphemeralContainerCommon))
	}
	return list
}

func hasSecretRef(v corev1.Volume) bool {
	return v.CephFS != nil && v.CephFS.SecretRef != nil || v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil || v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil || v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
}

func volumeReference(v corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "ConfigMap"
	case v.Secret != nil || v.AzureFile != nil || hasSecretRef(v):
		return "Secret"
	case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
		return "PersistentVolumeClaim"
	case v.CSI != nil:
		return "CSIDriver"
	case v.Glusterfs != nil:
		return "Endpoints"
	case v.Projected == nil:
		return ""
	}
	for _, source := range v.Projected.Sources {
		switch {
		case source.ConfigMap != nil:
			return "ConfigMap"
		case source.Secret != nil:
			return "Secret"
		case source.ServiceAccountToken != nil:
			return "ServiceAccount"
		case source.ClusterTrustBundle != nil:
			return "ClusterTrustBundle"
		case source.PodCertificate != nil:
			return "PodCertificateRequest"
		}
	}
	return ""
}

// proxies checks kube-proxy's command line and its configuration: its gates, its fields, and its mode (#139957). A kube-proxy with
// --config ignores the gates in its flags.
func (c *checker) proxies() {
	if !c.takes(cmp.Or(c.ProxyFrom, c.From)) {
		return
	}
	for _, command := range c.Commands {
		if command.Program != releases.Proxy {
			continue
		}
		c.flags(command.Where, c.flagsOf(releases.Proxy), command.Args)
		if _, configured := config.LastArg(command.Args, "config"); !configured {
			c.gates(command.Where, releases.Proxy, gatesOf(command.Args))
		}
	}
	for _, f := range c.Proxies {
		doc, ok := c.document(f)
		if !ok {
			continue
		}
		c.fields(f.Where, releases.Proxy, "", doc)
		c.gates(f.Where, releases.Proxy, gatesIn(doc))
		if !c.reaches("1.37") {
			continue
		}
		switch mode, _ := doc["mode"].(string); mode {
		case "":
			c.add(fault.Finding{Name: "proxy-mode-empty", Subject: f.Where, Field: "mode",
				Message: f.Where + ": mode is empty, which means iptables; from Kubernetes 1.40 on it means nftables",
				Remedy:  "set mode: iptables, or move to mode: nftables"})
		case "ipvs":
			c.add(fault.Finding{Name: "proxy-mode-ipvs", Subject: f.Where, Field: "mode",
				Message: f.Where + ": mode ipvs is deprecated",
				Remedy:  "move to mode: nftables"})
		}
	}
}

// files finds documents in an apiVersion the program doesn't read any more: it wouldn't start. Documents may contain others, as
// an AdmissionConfiguration does.
func (c *checker) files() {
	for _, f := range c.Files {
		docs, err := documentsIn(f.Data)
		if err != nil {
			c.add(fault.Finding{Name: NotChecked, Subject: f.Where, Field: "YAML",
				Message: fmt.Sprintf("%s: cannot be read, and was not checked: %v", f.Where, err), Remedy: "correct the file"})
			continue
		}
		for _, doc := range docs {
			c.fileVersion(f, doc)
		}
	}
}

// fileVersion checks a value of a file, and everything in it. It skips kinds that no earlier release read, such as those of
// admission plugins outside Kubernetes.
func (c *checker) fileVersion(f File, value any) {
	for _, object := range objectsIn(value) {
		apiVersion, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		if apiVersion != "" && releases.EverHadDocument(f.Program, apiVersion, kind) && !c.release.HasDocument(f.Program, apiVersion, kind) {
			c.add(fault.Finding{Name: "config-file-version", Severity: fault.Error, Subject: f.Where, Field: apiVersion + " " + kind,
				Message: fmt.Sprintf("%s: %s does not read a %s in %s", f.Where, c.programName(f.Program), kind, apiVersion),
				Remedy:  "write it as " + c.newerDocument(f.Program, kind)})
		}
		for _, below := range object {
			c.fileVersion(f, below)
		}
	}
}

// newerDocument returns the current form of a kind of configuration file. One kind got another name with its version (#137379).
func (c *checker) newerDocument(program, kind string) string {
	if kind == "WebhookAdmission" {
		kind += "Configuration"
	}
	versions := c.release.Documents(program, kind)
	if len(versions) == 0 {
		return "another kind: " + program + " no longer has this one"
	}
	return kind + " in " + strings.Join(versions, " or ")
}

func documentsIn(data []byte) ([]any, error) {
	var docs []any
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var doc any
		if err == nil {
			err = yaml.Unmarshal(raw, &doc)
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}
