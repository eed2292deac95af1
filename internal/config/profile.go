// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/slipway-k8s/slipway/internal/profile"
)

// applyProfile adds a profile's settings to the ClusterConfiguration and the KubeletConfiguration. The user's own stay, and are
// named.
func (d *documents) applyProfile(name string) {
	p, known := profile.Of(name)
	if !known {
		d.fault(Fault{Field: "--profile", Message: fmt.Sprintf("%q is unknown; expected one of %s%s",
			printable(name), strings.Join(profile.Names(), ", "), didYouMean(name, profile.Names()))})
		return
	}
	set := map[string]bool{}
	for _, s := range p.Settings {
		if s.With == "" || set[s.With] {
			set[s.Name] = d.applySetting(name, s)
			continue
		}
		c, at := d.component(s.Component)
		_, field, _ := argAt(at+".extraArgs", c.ExtraArgs, s.With)
		d.warnf(kindCluster, field, "%s stays, so the profile %s does not set %s, which needs its own file there", s.With, name, s.Name)
	}
	if len(p.Fields) > 0 {
		d.kubelet, d.hardened = cmp.Or(d.kubelet, &kubelet.KubeletConfiguration{}), true
	}
	for _, f := range p.Fields {
		hardened := d.kubelet.DeepCopy()
		f.Set(hardened)
		if d.isOwn(f.Path) && !reflect.DeepEqual(hardened, d.kubelet) {
			d.warnf(kindKubelet, f.Path, "stays as it is, although the profile %s sets it", name)
			continue
		}
		d.kubelet = hardened
	}
}

// isOwn reports whether the user has set a field of the KubeletConfiguration. A stored one also has zero values that nobody has set.
func (d *documents) isOwn(field string) bool {
	o := d.origins[kindKubelet]
	if o == nil || o.lines[field] == 0 || !d.stored {
		return o != nil && o.lines[field] != 0
	}
	if _, given := d.parts[KubeletSource].Locate(Fault{Field: field}); given {
		return true
	}
	return !reflect.DeepEqual(kubeletField(d.kubelet, field), kubeletField(&kubelet.KubeletConfiguration{}, field))
}

// kubeletField is the value of a field at the top, as JSON has it.
func kubeletField(k *kubelet.KubeletConfiguration, name string) any {
	tree := map[string]any{}
	data, err := json.Marshal(k)
	if err == nil {
		err = json.Unmarshal(data, &tree)
	}
	if err != nil {
		return err // no other value equals it
	}
	return tree[name]
}

// applySetting reports whether the component's flag has the profile's value.
func (d *documents) applySetting(name string, s profile.Setting) bool {
	c, at := d.component(s.Component)
	if s.InCertificatesDir {
		s.Value = path.Join(cmp.Or(d.cluster.CertificatesDir, DefaultCertificatesDir), s.Value)
	}
	for _, flag := range append([]string{s.Name}, s.Against...) {
		value, field, given := argAt(at+".extraArgs", c.ExtraArgs, flag)
		switch {
		case given && flag == s.Name && value == s.Value:
			return true
		case given && flag == s.Name:
			d.warnf(kindCluster, field, "stays as it is, although the profile %s sets %s to %s", name, s.Name, s.Value)
		case given:
			d.warnf(kindCluster, field, "%s stays, so the profile %s cannot set %s: %s does not start with both", flag, name, s.Name, s.Component)
		}
		if given {
			return false
		}
	}
	c.ExtraArgs = append(c.ExtraArgs, Arg{Name: s.Name, Value: s.Value})
	if s.Mount.Name != "" {
		d.applyMount(name, at, c, s.Mount)
	}
	return true
}

// applyMount reports another volume of the same name, or at the same path, as a fault: without its files, the component doesn't
// start.
func (d *documents) applyMount(name, at string, c *ControlPlaneComponent, m profile.Mount) {
	wanted := hostPath(m)
	for i, v := range c.ExtraVolumes {
		field := fmt.Sprintf("%s.extraVolumes[%d]", at, i)
		switch {
		case v == wanted:
			return
		case v.Name == wanted.Name:
			d.faultf(kindCluster, field+".name", "%q is the name of a volume of the profile %s; choose another", v.Name, name)
			return
		case v.MountPath == wanted.MountPath:
			d.faultf(kindCluster, field+".mountPath", "%s is where the profile %s has its volume %q; choose another path", v.MountPath, name, wanted.Name)
			return
		}
	}
	c.ExtraVolumes = append(c.ExtraVolumes, wanted)
}

func hostPath(m profile.Mount) HostPathMount {
	return HostPathMount{Name: m.Name, HostPath: m.Dir, MountPath: m.Dir, ReadOnly: m.ReadOnly, PathType: corev1.HostPathDirectoryOrCreate}
}

// component returns the settings of a component, and their path.
func (d *documents) component(name string) (c *ControlPlaneComponent, at string) {
	at = map[string]string{APIServerComponent: "apiServer", ControllerManagerComponent: "controllerManager", SchedulerComponent: "scheduler"}[name]
	return d.cluster.Component(name), at
}

// Component returns the settings of a component of the control plane. Etcd's are a copy, empty if it's external.
func (c *ClusterConfiguration) Component(name string) *ControlPlaneComponent {
	switch name {
	case APIServerComponent:
		return &c.APIServer.ControlPlaneComponent
	case ControllerManagerComponent:
		return &c.ControllerManager
	case SchedulerComponent:
		return &c.Scheduler
	}
	if c.Etcd.Local == nil {
		return &ControlPlaneComponent{}
	}
	return &ControlPlaneComponent{ExtraArgs: c.Etcd.Local.ExtraArgs, ExtraEnvs: c.Etcd.Local.ExtraEnvs}
}

// ProfileFiles lists the files of profiles that the API server reads, according to its flags and volumes. They follow the
// cluster's configuration to every control plane.
func (n *Node) ProfileFiles() []profile.File {
	return slices.DeleteFunc(profile.Files(), func(f profile.File) bool { return !n.inMount(f.Flag, f.Path, f.Mount) })
}

// AuditLogDir is the directory of a profile's audit logs, empty without them.
func (n *Node) AuditLogDir() string {
	if m := profile.LogMount(); n.inMount(profile.AuditLogFlag, profile.LogFile(), m) {
		return m.Dir
	}
	return ""
}

// inMount reports whether an API server's flag has a profile's value, and its directory is mounted as the profile does it.
func (n *Node) inMount(flag, path string, m profile.Mount) bool {
	value, _ := LastArg(n.Cluster.APIServer.ExtraArgs, flag)
	return value == path && slices.Contains(n.Cluster.APIServer.ExtraVolumes, hostPath(m))
}

// PrintProfile returns the ClusterConfiguration and the KubeletConfiguration of a file, which may be nil, with a profile's
// settings, and then its files.
func PrintProfile(name string, src *Source) ([]byte, []string, error) {
	d := read(src)
	d.cluster, d.kubelet = cmp.Or(d.cluster, &ClusterConfiguration{}), cmp.Or(d.kubelet, &kubelet.KubeletConfiguration{})
	d.applyProfile(name)
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	d.cluster.TypeMeta = metav1.TypeMeta{APIVersion: apiV1beta4, Kind: kindCluster}
	docs := []any{d.cluster}
	if d.hardened || d.origins[kindKubelet] != nil {
		d.kubelet.TypeMeta = metav1.TypeMeta{APIVersion: kubeletAPI, Kind: kindKubelet}
		docs = append(docs, d.kubelet)
	}
	out, err := marshal(docs...)
	n := &Node{Cluster: *d.cluster}
	for _, f := range n.ProfileFiles() {
		out = fmt.Appendf(out, "---\n# %s\n%s", f.Path, f.Data)
	}
	return out, d.warningTexts(), err
}

// ProfileParts returns what a profile changes in a cluster's stored configurations, as LoadParts does for a user's documents. The
// stored ones have the user's parts already. A setting that the cluster has stays; the warnings name it.
func ProfileParts(name string, cluster, kubelets []byte, users map[string]Part) (map[string]Part, []string, error) {
	d := newStored()
	d.addStored(ClusterSource, kindCluster, cluster)
	d.addStored(KubeletSource, kindKubelet, kubelets)
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	d.parts, d.warnings = users, nil // those of the stored text come up when the result is loaded
	before, err := d.storedJSON()
	if err != nil {
		return nil, nil, err
	}
	d.applyProfile(name)
	for _, list := range [][]Fault{d.faults, d.warnings} {
		for i, f := range list {
			list[i], _ = users[f.File].Locate(Fault{File: f.File, Field: f.Field, Message: f.Message})
		}
	}
	if err := d.err(); err != nil {
		return nil, d.warningTexts(), err
	}
	after, err := d.storedJSON()
	if err != nil {
		return nil, nil, err
	}
	parts := map[string]Part{}
	for source := range after {
		fields, err := changedFields(before[source], after[source])
		if err != nil {
			return nil, nil, err
		}
		parts[source] = Part{Fields: fields}
	}
	return parts, d.warningTexts(), nil
}

// storedJSON are the documents that a profile changes, by source.
func (d *documents) storedJSON() (map[string][]byte, error) {
	texts := map[string][]byte{}
	for source, document := range map[string]any{ClusterSource: d.cluster, KubeletSource: d.kubelet} {
		data, err := json.Marshal(document)
		if err != nil {
			return nil, errors.WithStack(err)
		}
		texts[source] = data
	}
	return texts, nil
}

// changedFields is the merge patch (RFC 7396) from one document to another.
func changedFields(before, after []byte) (fields map[string]any, err error) {
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	return fields, errors.WithStack(json.Unmarshal(patch, &fields))
}
