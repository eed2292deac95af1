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
)

func (d *documents) checkJoin() {
	c := d.join
	d.checkAbsolute(kindJoin, "caCertPath", c.CACertPath)
	d.checkDiscovery(&c.Discovery)
	if cp := c.ControlPlane; cp != nil {
		d.checkPort(kindJoin, "controlPlane.localAPIEndpoint.bindPort", cp.LocalAPIEndpoint.BindPort)
		d.checkCertificateKey(kindJoin, "controlPlane.certificateKey", cp.CertificateKey)
	}
	d.checkTimeouts(kindJoin, c.Timeouts)
	d.checkSkipPhases(kindJoin, "skipPhases", c.SkipPhases)
	if c.Patches != nil {
		d.checkText(kindJoin, "patches.directory", c.Patches.Directory)
	}
}

// checkDiscovery requires exactly one way of discovery, and well-formed tokens.
func (d *documents) checkDiscovery(c *Discovery) {
	switch {
	case c.BootstrapToken == nil && c.File == nil:
		d.faultf(kindJoin, "discovery", "requires bootstrapToken or file; on the command line, HOST:PORT and --token, or --discovery-file")
	case c.BootstrapToken != nil && c.File != nil:
		d.faultf(kindJoin, "discovery", "bootstrapToken and file cannot be set together")
	}
	if t := c.BootstrapToken; t != nil {
		d.checkTokenDiscovery(t)
	}
	if c.File != nil {
		d.checkFileDiscovery(c.File.KubeConfigPath)
	}
	// A copy of the discovery token has already been checked.
	if c.TLSBootstrapToken != "" && (c.BootstrapToken == nil || c.TLSBootstrapToken != c.BootstrapToken.Token) {
		d.checkTokenForm(kindJoin, "discovery.tlsBootstrapToken", c.TLSBootstrapToken)
	}
}

func (d *documents) checkTokenDiscovery(t *BootstrapTokenDiscovery) {
	const at = "discovery.bootstrapToken"
	if t.Token == "" {
		d.faultf(kindJoin, at+".token", "is missing (--token, --token-file); `slipway token create --print-join-command` on a control plane creates one")
	} else {
		d.checkTokenForm(kindJoin, at+".token", t.Token)
	}
	if t.APIServerEndpoint == "" {
		d.faultf(kindJoin, at+".apiServerEndpoint", "is missing: HOST:PORT of the cluster's API server")
	} else if msg := hostPortFault(t.APIServerEndpoint, true); msg != "" {
		d.faultf(kindJoin, at+".apiServerEndpoint", "%q %s", printable(t.APIServerEndpoint), msg)
	}
	if len(t.CACertHashes) == 0 && !t.UnsafeSkipCAVerification {
		d.faultf(kindJoin, at+".caCertHashes", "is empty, so that anyone could impersonate the cluster; set the CA's hash (--discovery-token-ca-cert-hash) or unsafeSkipCAVerification")
	}
	for i, hash := range t.CACertHashes {
		if !caHashPattern().MatchString(hash) {
			d.faultf(kindJoin, fmt.Sprintf("%s.caCertHashes[%d]", at, i), "must be sha256: followed by 64 hexadecimal digits")
		}
	}
}

// checkFileDiscovery checks the form only; the joining host checks whether the file exists.
func (d *documents) checkFileDiscovery(file string) {
	const field = "discovery.file.kubeConfigPath"
	u, err := url.Parse(file)
	switch {
	case file == "":
		d.faultf(kindJoin, field, "is missing")
	case err == nil && u.Scheme != "" && u.Scheme != "https":
		d.faultf(kindJoin, field, "must be a file or an https URL")
	case err == nil && u.Scheme == "https" && u.Host == "":
		d.faultf(kindJoin, field, "is a URL without a host")
	default:
		d.checkText(kindJoin, field, file)
	}
}

func (d *documents) checkReset() {
	c := d.reset
	d.checkAbsolute(kindReset, "certificatesDir", c.CertificatesDir)
	d.checkIgnored(kindReset, "ignorePreflightErrors", c.IgnorePreflightErrors)
	d.checkSkipPhases(kindReset, "skipPhases", c.SkipPhases)
	// The flags of umount2(2).
	known := []string{"MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW"}
	for i, flag := range c.UnmountFlags {
		if !slices.Contains(known, flag) {
			d.faultf(kindReset, fmt.Sprintf("unmountFlags[%d]", i), "%q is unknown; expected one of %s%s", printable(flag), strings.Join(known, ", "), didYouMean(flag, known))
		}
	}
	d.checkTimeouts(kindReset, c.Timeouts)
}

func (d *documents) checkUpgrade() {
	c := d.upgrade
	for _, v := range []struct{ command, path, version string }{
		{upgradeApply, "apply.kubernetesVersion", c.Apply.KubernetesVersion},
		{upgradeDiff, "diff.kubernetesVersion", c.Diff.KubernetesVersion},
		{upgradePlan, "plan.kubernetesVersion", c.Plan.KubernetesVersion},
	} {
		if v.version == "" || versionLabel().MatchString(v.version) {
			continue
		}
		if fault := targetFault(v.command, v.version); fault != "" {
			d.faultf(kindUpgrade, v.path, "%q %s", printable(v.version), fault)
		}
	}
	d.checkPullPolicy(kindUpgrade, "apply.imagePullPolicy", c.Apply.ImagePullPolicy)
	d.checkPullPolicy(kindUpgrade, "node.imagePullPolicy", c.Node.ImagePullPolicy)
	d.checkIgnored(kindUpgrade, "apply.ignorePreflightErrors", c.Apply.IgnorePreflightErrors)
	d.checkIgnored(kindUpgrade, "node.ignorePreflightErrors", c.Node.IgnorePreflightErrors)
	d.checkIgnored(kindUpgrade, "plan.ignorePreflightErrors", c.Plan.IgnorePreflightErrors)
	d.checkSkipPhases(kindUpgrade, "apply.skipPhases", c.Apply.SkipPhases)
	d.checkSkipPhases(kindUpgrade, "node.skipPhases", c.Node.SkipPhases)
	d.checkPatchesDir("apply.patches.directory", c.Apply.Patches)
	d.checkPatchesDir("node.patches.directory", c.Node.Patches)
	if c.Diff.DiffContextLines < 0 {
		d.faultf(kindUpgrade, "diff.contextLines", "%d is negative", c.Diff.DiffContextLines)
	}
	d.checkTimeouts(kindUpgrade, c.Timeouts)
}

func (d *documents) checkPatchesDir(field string, p *Patches) {
	if p != nil && p.Directory != "" {
		d.checkAbsolute(kindUpgrade, field, p.Directory)
	}
}

// checkComponents warns if component configurations contradict the ClusterConfiguration. It keeps the user's values.
func (d *documents) checkComponents() {
	d.checkKubelet()
	if p := d.kubeProxy; p != nil {
		if pods := d.cluster.Networking.PodSubnet; p.ClusterCIDR != "" && pods != "" && p.ClusterCIDR != pods {
			d.warnf(kindKubeProxy, "clusterCIDR", "%s differs from networking.podSubnet %s", printable(p.ClusterCIDR), pods)
		}
		modes := []string{"iptables", "ipvs", "nftables", "kernelspace"}
		if p.Mode != "" && !slices.Contains(modes, string(p.Mode)) {
			d.faultf(kindKubeProxy, "mode", "%q is unknown; expected one of %s%s", printable(string(p.Mode)), strings.Join(modes, ", "), didYouMean(string(p.Mode), modes))
		}
		if p.Mode == "ipvs" {
			d.warnf(kindKubeProxy, "mode", "Kubernetes will remove ipvs; move to nftables")
		}
		if _, err := netip.ParseAddr(p.BindAddress); p.BindAddress != "" && err != nil {
			d.faultf(kindKubeProxy, "bindAddress", "%q is not an IP address", printable(p.BindAddress))
		}
	}
}

func (d *documents) checkKubelet() {
	k := d.kubelet
	if k == nil {
		return
	}
	if manifests := path.Join(DefaultKubernetesDir, "manifests"); k.StaticPodPath != "" && path.Clean(k.StaticPodPath) != manifests {
		d.warnf(kindKubelet, "staticPodPath", "%s is not %s, where the control plane's manifests are; the control plane will not start", printable(k.StaticPodPath), manifests)
	}
	if domain := d.cluster.Networking.DNSDomain; k.ClusterDomain != "" && k.ClusterDomain != domain {
		d.warnf(kindKubelet, "clusterDomain", "%s differs from networking.dnsDomain %s", printable(k.ClusterDomain), domain)
	}
	if dns := clusterDNS(d.cluster); k.ClusterDNS != nil && len(dns) > 0 && !slices.Equal(k.ClusterDNS, dns) {
		d.warnf(kindKubelet, "clusterDNS", "%s differs from the address of the DNS Service, %s", printable(strings.Join(k.ClusterDNS, ", ")), dns[0])
	}
	if on := k.Authentication.Anonymous.Enabled; on != nil && *on {
		d.warnf(kindKubelet, "authentication.anonymous.enabled", "allows anonymous requests to the kubelet")
	}
	if mode := string(k.Authorization.Mode); mode != "" && mode != "Webhook" {
		d.warnf(kindKubelet, "authorization.mode", "%s gives every client full access to the kubelet", printable(mode))
	}
	if p := k.HealthzPort; p != nil && *p != kubeletHealthzPort {
		d.warnf(kindKubelet, "healthzPort", "%d differs from the default %d", *p, kubeletHealthzPort)
	}
	if o := d.origins[kindKubelet]; o != nil && o.lines["rotateCertificates"] > 0 && !k.RotateCertificates {
		d.warnf(kindKubelet, "rotateCertificates", "is changed to true: without rotation the node drops out of the cluster when its certificate expires")
	}
}
