// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var (
	exactVersion = lazyregexp.New(`^v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	versionLabel = lazyregexp.New(`^(release/)?((stable|latest)(-\d{1,4}(\.\d{1,4})?)?)$`)
)

// labelDeadline limits the resolution of a label, for hosts without network access.
const labelDeadline = 5 * time.Second

// ResolveLabel asks dl.k8s.io over HTTPS for the version a label such as stable-1.36 stands for. It takes at most five seconds.
func ResolveLabel(ctx context.Context, label string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, labelDeadline)
	defer cancel()
	return fetchLabel(ctx, http.DefaultClient, "https://dl.k8s.io/release/"+label+".txt")
}

func fetchLabel(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", errors.Wrap(err, url)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err // names the URL already
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", errors.Errorf("%s: the server answered %s", url, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 128))
	if err != nil {
		return "", errors.Wrap(err, url)
	}
	version := strings.TrimSpace(string(body))
	if !exactVersion().MatchString(version) {
		return "", errors.Errorf("%s: the answer is not a version", url)
	}
	return version, nil
}

// builtIn resolves a label without the network: to the version of the host's bundle, or otherwise to the newest this program was
// built with. It's "" if neither is in the label's series.
func (o Options) builtIn(label string) string {
	_, series, _ := strings.Cut(label, "-")
	major, minor, narrow := strings.Cut(series, ".")
	number, _ := strconv.Atoi(minor)
	switch {
	case major != "" && major != "1":
		return ""
	case !narrow:
		return cmp.Or(o.KubernetesVersion, DefaultKubernetesVersion)
	case minorOf(o.KubernetesVersion) == number:
		return cmp.Or(o.KubernetesVersion, NewestPatch(number))
	}
	return NewestPatch(number)
}

// exact returns the user's kubernetesVersion in the form v1.2.3. If a label can't be resolved, it warns and uses the newest
// built-in version of the series. It adds faults to d.
func (d *documents) exact(ctx context.Context, opts Options) string {
	version := strings.TrimSpace(d.cluster.KubernetesVersion)
	if strings.HasPrefix(version, "ci/") {
		d.faultf(kindCluster, "kubernetesVersion", "CI builds are not supported; use a release such as %s", DefaultKubernetesVersion)
		return DefaultKubernetesVersion
	}
	if m := versionLabel().FindStringSubmatch(version); m != nil {
		resolved, err := opts.resolve(ctx, m[2])
		known := opts.builtIn(m[2])
		switch {
		case err != nil && known == "":
			d.faultf(kindCluster, "kubernetesVersion", "cannot resolve %q, and this program knows no such version; name one, such as %s: %v",
				version, DefaultKubernetesVersion, err)
			return DefaultKubernetesVersion
		case err != nil:
			d.warnf(kindCluster, "kubernetesVersion", "cannot resolve %q, using %s: %v", version, known, err)
			return known
		case versionFault(resolved) != "":
			d.faultf(kindCluster, "kubernetesVersion", "%q resolves to %s, which %s", version, resolved, versionFault(resolved))
			return DefaultKubernetesVersion
		}
		return "v" + strings.TrimPrefix(resolved, "v")
	}
	if fault := versionFault(version); fault != "" {
		d.faultf(kindCluster, "kubernetesVersion", "%q %s", printable(version), fault)
		return DefaultKubernetesVersion
	}
	return "v" + strings.TrimPrefix(version, "v")
}

// malformed explains why a text isn't an exact version; it's empty if the text is.
func malformed(version string) string {
	if exactVersion().MatchString(version) {
		return ""
	}
	return "is not a version such as " + DefaultKubernetesVersion + " or a label such as stable-1"
}

// versionFault explains why a version can't be used; it's empty if it can.
func versionFault(version string) string {
	if fault := malformed(version); fault != "" {
		return fault
	}
	supported := releases()
	oldest, newest := supported[0].minor, supported[len(supported)-1].minor
	if minor := minorOf(version); minor >= oldest && minor <= newest {
		return ""
	}
	return fmt.Sprintf("is not supported; this program sets up Kubernetes 1.%d to 1.%d", oldest, newest)
}

// minorOf returns the minor version of an exact version such as v1.37.2, and 0 for anything else or another major version.
func minorOf(version string) int {
	m := exactVersion().FindStringSubmatch(version)
	if m == nil || m[1] != "1" {
		return 0
	}
	minor, _ := strconv.Atoi(m[2])
	return minor
}

// gateECDSA is a retired gate of stored configurations: the cluster's keys are ECDSA P-256. encryptionAlgorithm has replaced it.
const gateECDSA = "PublicKeysECDSA"

// gateRootless runs the control plane's containers as non-root users. It's kubeadm 1.37's only gate, and off by default.
const gateRootless = "RootlessControlPlane"

// gateLocalKubelet connects the kubelet of a control plane to its own API server, as Slipway always does. Cluster API's controllers
// turn it on for all versions before localKubeletMinor, in which kubeadm dropped it.
const (
	gateLocalKubelet  = "ControlPlaneKubeletLocalMode"
	localKubeletMinor = 36
)

// retiredGates are no longer in kubeadm 1.37, but older clusters still name them.
func retiredGates() []string {
	return []string{gateLocalKubelet, "EtcdLearnerMode", "NodeLocalCRISocket", gateECDSA, "WaitForAllControlPlaneComponents"}
}

func (d *documents) parseGates(text string) map[string]bool {
	gates := make(map[string]bool)
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			d.faultf(kindCluster, "featureGates", "%q must be NAME=true or NAME=false", printable(pair))
			continue
		}
		gates[strings.TrimSpace(name)] = on
	}
	return gates
}
