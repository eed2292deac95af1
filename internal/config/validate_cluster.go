// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var (
	// A registry, optionally with a port and a path.
	repositoryPattern = lazyregexp.New(`^(\[[0-9a-fA-F:]+\]|[a-zA-Z0-9]([-a-zA-Z0-9._]*[a-zA-Z0-9])?)(:[0-9]{1,5})?(/[a-zA-Z0-9]([-a-zA-Z0-9._]*[a-zA-Z0-9])?)*$`)
	tagPattern        = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	argNamePattern    = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// checkCluster checks a defaulted ClusterConfiguration; its networks and version have been checked already.
func (d *documents) checkCluster() {
	c := d.cluster
	if e := c.ControlPlaneEndpoint; e != "" {
		if msg := hostPortFault(e, false); msg != "" {
			d.faultf(kindCluster, "controlPlaneEndpoint", "%q %s", printable(e), msg)
		}
	}
	d.checkSANs("apiServer.certSANs", c.APIServer.CertSANs)
	d.checkComponent("apiServer", &c.APIServer.ControlPlaneComponent)
	d.checkComponent("controllerManager", &c.ControllerManager)
	d.checkComponent("scheduler", &c.Scheduler)
	d.checkEtcd()
	d.checkAbsolute(kindCluster, "certificatesDir", c.CertificatesDir)
	d.checkRepository("imageRepository", c.ImageRepository)
	d.checkImage("dns", c.DNS.ImageMeta)
	d.checkText(kindCluster, "clusterName", c.ClusterName)
	d.checkFeatureGates()
	d.checkKeys()
}

func (d *documents) checkKeys() {
	c := d.cluster
	checkOneOf(d, kindCluster, "encryptionAlgorithm", "%q is unknown", c.EncryptionAlgorithm, RSA2048, RSA3072, RSA4096, ECDSAP256, ECDSAP384)
	d.checkPositive("certificateValidityPeriod", c.CertificateValidityPeriod)
	d.checkPositive("caCertificateValidityPeriod", c.CACertificateValidityPeriod)
	if leaf, ca := c.CertificateValidityPeriod.Duration, c.CACertificateValidityPeriod.Duration; ca > 0 && leaf > ca {
		d.warnf(kindCluster, "certificateValidityPeriod", "%s is longer than caCertificateValidityPeriod (%s); no certificate outlives its CA", leaf, ca)
	}
}

// checkFeatureGates accepts any gate in a stored configuration: noteExtra reports unknown gates. Elsewhere, it accepts a retired gate
// that asks for the usual.
func (d *documents) checkFeatureGates() {
	if d.stored {
		return
	}
	for _, name := range keysOf(d.cluster.FeatureGates) {
		if name == gateLocalKubelet && d.cluster.FeatureGates[name] && minorOf(d.cluster.KubernetesVersion) < localKubeletMinor {
			continue
		}
		if slices.Contains(retiredGates(), name) {
			d.faultf(kindCluster, joinPath("featureGates", name), "is a retired feature gate; remove it")
			continue
		}
		checkOneOf(d, kindCluster, joinPath("featureGates", printable(name)), "unknown feature gate %q", name, gateRootless)
	}
}

func (d *documents) checkSANs(at string, names []string) {
	for i, san := range names {
		p := fmt.Sprintf("%s[%d]", at, i)
		if _, err := netip.ParseAddr(san); err == nil {
			continue
		}
		bare, wildcard := strings.CutPrefix(san, "*.")
		if fourNumbers().MatchString(san) { // although it would pass as a name: 010.1.2.3 or 1.2.3.400
			d.faultf(kindCluster, p, "%q is not an IP address", printable(san))
		} else if msg := subdomainFault(strings.ToLower(bare)); msg != "" {
			what := "is neither an IP address nor a DNS name"
			if wildcard {
				what = "is not a wildcard DNS name"
			}
			d.faultf(kindCluster, p, "%q %s: it %s", printable(san), what, msg)
		}
	}
}

var fourNumbers = lazyregexp.New(`^[0-9]+(\.[0-9]+){3}$`)

func (d *documents) checkComponent(at string, c *ControlPlaneComponent) {
	d.checkArgs(kindCluster, at+".extraArgs", c.ExtraArgs)
	d.checkEnvs(at+".extraEnvs", c.ExtraEnvs)
	seen := make(map[string]bool)
	for i, v := range c.ExtraVolumes {
		p := fmt.Sprintf("%s.extraVolumes[%d]", at, i)
		if len(validation.IsDNS1123Label(v.Name)) > 0 {
			d.faultf(kindCluster, p+".name", "%q must be at most 63 characters of a-z, 0-9 and -, and begin and end with a letter or digit", printable(v.Name))
		}
		if seen[v.Name] {
			d.faultf(kindCluster, p+".name", "%q is also the name of another volume in the list", printable(v.Name))
		}
		seen[v.Name] = true
		if !path.IsAbs(v.HostPath) || hasControl(v.HostPath) {
			d.faultf(kindCluster, p+".hostPath", "%q must be an absolute path", printable(v.HostPath))
		}
		if !path.IsAbs(v.MountPath) || hasControl(v.MountPath) || strings.Contains(v.MountPath, ":") {
			d.faultf(kindCluster, p+".mountPath", "%q must be an absolute path without a colon", printable(v.MountPath))
		}
		if v.PathType != "" {
			checkOneOf(d, kindCluster, p+".pathType", "%q is unknown", v.PathType, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
				corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
		}
	}
}

// checkArgs keeps flags' values, which may be secret, out of its messages.
func (d *documents) checkArgs(kind, at string, args []Arg) {
	for i, a := range args {
		p := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case a.Name == "":
			d.faultf(kind, p+".name", "is missing")
		case strings.HasPrefix(a.Name, "-"):
			d.faultf(kind, p+".name", "%q begins with a dash; write the name without dashes", printable(a.Name))
		case !argNamePattern().MatchString(a.Name):
			d.faultf(kind, p+".name", "%q is not the name of a flag", printable(a.Name))
		}
		if hasControl(a.Value) {
			d.faultf(kind, p+".value", "contains a control character")
		}
	}
}

func (d *documents) checkEnvs(at string, envs []EnvVar) {
	for i, e := range envs {
		p := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case e.Name == "":
			d.faultf(kindCluster, p+".name", "is missing")
		case len(validation.IsEnvVarName(e.Name)) > 0:
			d.faultf(kindCluster, p+".name", "%q is not the name of an environment variable", printable(e.Name))
		}
		if e.Value != "" && e.ValueFrom != nil {
			d.faultf(kindCluster, p+".valueFrom", "cannot be given together with value")
		}
	}
}

func (d *documents) checkEtcd() {
	e := &d.cluster.Etcd
	if e.Local != nil && e.External != nil {
		d.faultf(kindCluster, "etcd", "local and external cannot be set together")
	}
	if l := e.Local; l != nil {
		d.checkAbsolute(kindCluster, "etcd.local.dataDir", l.DataDir)
		d.checkOwn("etcd.local.dataDir", l.DataDir)
		d.checkImage("etcd.local", l.ImageMeta)
		d.checkArgs(kindCluster, "etcd.local.extraArgs", l.ExtraArgs)
		d.checkEnvs("etcd.local.extraEnvs", l.ExtraEnvs)
		d.checkSANs("etcd.local.serverCertSANs", l.ServerCertSANs)
		d.checkSANs("etcd.local.peerCertSANs", l.PeerCertSANs)
	}
	if x := e.External; x != nil {
		d.checkExternalEtcd(x)
	}
}

// checkExternalEtcd requires HTTPS endpoints if certificates are set; otherwise, plain HTTP will do.
func (d *documents) checkExternalEtcd(x *ExternalEtcd) {
	const at = "etcd.external"
	if len(x.Endpoints) == 0 {
		d.faultf(kindCluster, at+".endpoints", "is empty; set at least one endpoint such as https://10.0.0.5:2379")
	}
	for _, f := range []struct{ name, file string }{{"caFile", x.CAFile}, {"certFile", x.CertFile}, {"keyFile", x.KeyFile}} {
		if f.file != "" {
			d.checkAbsolute(kindCluster, at+"."+f.name, f.file)
		}
	}
	if (x.CertFile == "") != (x.KeyFile == "") {
		d.faultf(kindCluster, at, "certFile and keyFile must be set together")
	}
	if x.CertFile != "" && x.CAFile == "" {
		d.faultf(kindCluster, at+".caFile", "is missing; certFile and keyFile require it")
	}
	secure := x.CAFile != "" || x.CertFile != "" || x.KeyFile != ""
	d.checkEtcdURLs(at+".endpoints", x.Endpoints, secure)
	if !slices.Equal(x.HTTPEndpoints, x.Endpoints) {
		d.checkEtcdURLs(at+".httpEndpoints", x.HTTPEndpoints, false) // versions and health may travel in the clear
	}
}

func (d *documents) checkEtcdURLs(at string, endpoints []string, secure bool) {
	for i, endpoint := range endpoints {
		p := fmt.Sprintf("%s[%d]", at, i)
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			d.faultf(kindCluster, p, "must be a URL such as https://10.0.0.5:2379")
		case u.User != nil:
			d.faultf(kindCluster, p, "must not contain a user and a password")
		case secure && u.Scheme != "https":
			d.faultf(kindCluster, p, "%s must be https, because certificates are set", endpoint)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
			d.faultf(kindCluster, p, "%q must end after the port", printable(endpoint))
		case hostPortFault(u.Host, false) != "":
			d.faultf(kindCluster, p, "%q %s", printable(endpoint), hostPortFault(u.Host, false))
		}
	}
}

func (d *documents) checkImage(at string, image ImageMeta) {
	d.checkRepository(at+".imageRepository", image.ImageRepository)
	if image.ImageTag != "" && !tagPattern().MatchString(image.ImageTag) {
		d.faultf(kindCluster, at+".imageTag", "%q is not an image tag", printable(image.ImageTag))
	}
}

func (d *documents) checkRepository(field, repository string) {
	switch {
	case repository == "" || repositoryPattern().MatchString(repository):
	case strings.Contains(repository, "://"):
		d.faultf(kindCluster, field, "%q must not have a scheme", printable(repository))
	default:
		d.faultf(kindCluster, field, "%q is not a registry such as registry.example:5000/kubernetes", printable(repository))
	}
}

// Directories etcd mustn't use, because they belong to the system or to other programs: etcd's data directory is made private,
// and emptied by reset. See the Filesystem Hierarchy Standard.
var (
	systemTrees = []string{"/bin", "/boot", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"}
	sharedDirs  = []string{
		"/", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var",
		"/etc/cni", "/etc/kubernetes", "/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/etc/ssh", "/etc/ssl", "/etc/systemd",
		"/var/backups", "/var/cache", "/var/lib", "/var/lib/cni", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker",
		"/var/lib/kubelet", "/var/lock", "/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool", "/var/tmp",
	}
)

// checkOwn refuses a directory etcd would share with others.
func (d *documents) checkOwn(field, dir string) {
	clean := path.Clean(dir)
	inTree := slices.ContainsFunc(systemTrees, func(t string) bool { return clean == t || strings.HasPrefix(clean, t+"/") })
	if path.IsAbs(dir) && (inTree || slices.Contains(sharedDirs, clean)) {
		d.faultf(kindCluster, field, "%q belongs to the system or to other programs; use a directory of its own, such as %s", printable(dir), DefaultEtcdDataDir)
	}
}
