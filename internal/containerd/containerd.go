// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package containerd makes the files of a containerd that Slipway installs; phases/machine writes them. Config makes config.toml
// from Settings, which differ between hosts, and ServiceUnit makes the unit. ProxyEnv and ProxyDropIn pass on the environment's
// proxies, Mirror is a registry's mirror, and CrictlConfig is crictl's configuration. Nothing here reads or writes a file.
package containerd

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// The unit, the socket and the files of a containerd that Slipway installs.
const (
	Unit       = "containerd.service"
	Socket     = "unix:///run/containerd/containerd.sock"
	ConfigPath = "/etc/containerd/config.toml"
	// ConfDir is for operators' own settings, which take precedence.
	ConfDir   = "/etc/containerd/conf.d"
	CertsDir  = "/etc/containerd/certs.d"
	ProxyPath = "/etc/systemd/system/containerd.service.d/10-slipway-proxy.conf"
	// ProxyEnvPath has the proxies themselves, readable only by root: systemd shows every user its units, and a proxy's URL may hold
	// a password.
	ProxyEnvPath = "/etc/containerd/slipway-proxy.env"
	// DataDir has images and containers.
	DataDir = "/var/lib/containerd"
)

// Directories are containerd's own: its data, its state (gone after a boot), and its plugins.
func Directories() []string {
	return []string{DataDir, "/run/containerd", "/run/nri", "/opt/containerd"}
}

// Settings differ between hosts.
type Settings struct {
	// SandboxImage keeps a Pod's namespaces.
	SandboxImage string
	// SystemdCgroup makes systemd manage the cgroups of containers.
	SystemdCgroup bool
	// Runc is the program's path.
	Runc string
}

// Config is config.toml, version 3:
// https://github.com/containerd/containerd/blob/main/docs/cri/config.md
func Config(s Settings) []byte {
	return fmt.Appendf(nil, `# Made when this host was prepared. Once it is edited, it stays as it is; but settings
# of your own are better kept in %[1]s/*.toml, which take precedence.
version = 3
imports = ['%[1]s/*.toml']

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[2]q

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '%[3]s'

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/opt/cni/bin']
conf_dir = '/etc/cni/net.d'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %[4]q
SystemdCgroup = %[5]t
`, ConfDir, s.SandboxImage, CertsDir, s.Runc, s.SystemdCgroup)
}

// ServiceUnit is the unit that starts program, a path to containerd. Restarting it stops no containers (KillMode), and systemd
// leaves their cgroups to containerd (Delegate). After many images were unpacked, a slow host needs minutes to start it.
func ServiceUnit(program string) []byte {
	return fmt.Appendf(nil, `[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target dbus.service

[Service]
Type=notify
ExecStart=%s
TimeoutStartSec=5min
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`, program)
}

// ProxyDropIn makes containerd read ProxyEnvPath. The kubelet gets no proxy: its requests are for the cluster.
func ProxyDropIn() []byte { return []byte("[Service]\nEnvironmentFile=" + ProxyEnvPath + "\n") }

// ProxyEnv has an environment's proxies (NAME=VALUE) in the format of systemd's EnvironmentFile=; nil if there are none.
func ProxyEnv(environ []string) []byte {
	values := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		name = strings.ToUpper(name)
		if slices.Contains(proxyVariables, name) && value != "" {
			values[name] = value
		}
	}
	if values["HTTP_PROXY"] == "" && values["HTTPS_PROXY"] == "" {
		return nil
	}
	var b strings.Builder
	for _, name := range proxyVariables {
		if values[name] != "" {
			fmt.Fprintf(&b, "%s=%s\n", name, quoted(values[name]))
		}
	}
	return []byte(b.String())
}

var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// ShownProxies are the proxies, NAME=VALUE, in an earlier release's drop-in, where every user could see them.
func ShownProxies(dropIn []byte) []string {
	var environ []string
	for line := range strings.Lines(string(dropIn)) {
		value, found := strings.CutPrefix(strings.TrimSpace(line), `Environment="`)
		if value, closed := strings.CutSuffix(value, `"`); found && closed {
			environ = append(environ, strings.NewReplacer(`\\`, `\`, `\"`, `"`, "%%", "%").Replace(value))
		}
	}
	return environ
}

// quoted escapes a value for EnvironmentFile=: systemd.exec(5).
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "\n", " ").Replace(value) + `"`
}

// Mirror is another place to pull a registry's images from.
type Mirror struct {
	// Registry is a host with an optional port, such as registry.k8s.io.
	Registry string
	// URL is http or https.
	URL string
}

var registryName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?$`)

// ParseMirror reads REGISTRY=URL. Its errors don't show the URL, which may hold a password.
func ParseMirror(text string) (Mirror, error) {
	registry, target, _ := strings.Cut(text, "=")
	u, err := url.Parse(target)
	switch {
	case !registryName.MatchString(registry):
		return Mirror{}, errors.New("a mirror is written as REGISTRY=URL, such as registry.k8s.io=https://mirror.example")
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "":
		return Mirror{}, errors.Errorf("the mirror of %s is not an http or https URL such as https://mirror.example", registry)
	case u.User != nil:
		return Mirror{}, errors.Errorf("the mirror of %s has a user or password in its URL: put credentials into %s", registry, ConfDir)
	}
	return Mirror{registry, u.String()}, nil
}

// Path is where containerd looks for the mirror.
func (m Mirror) Path() string { return CertsDir + "/" + m.Registry + "/hosts.toml" }

// Hosts is the file at Path: https://github.com/containerd/containerd/blob/main/docs/hosts.md
//
// If the URL has a path, the mirror keeps its images below it. containerd expects the API's v2 in that path, though image names
// don't have it, so Hosts adds it unless the path already says where the API is.
//
// Hosts names no `server`: containerd then falls back to the registry, and knows its API better. docker.io's is at
// registry-1.docker.io, and one on localhost may lack TLS.
func (m Mirror) Hosts() []byte {
	target, override := m.URL, ""
	if u, err := url.Parse(m.URL); err == nil && strings.Trim(u.Path, "/") != "" {
		override = "  override_path = true\n"
		if !slices.Contains(strings.Split(u.Path, "/"), "v2") {
			escaped := u.EscapedPath()
			u.Path, u.RawPath = "/v2"+u.Path, "/v2"+escaped
			target = u.String()
		}
	}
	return fmt.Appendf(nil, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n%s", target, override)
}

// CrictlPath is where crictl looks for its configuration.
const CrictlPath = "/etc/crictl.yaml"

// CrictlConfig makes crictl use the runtime at a socket.
func CrictlConfig(socket string) []byte {
	return fmt.Appendf(nil, "runtime-endpoint: %[1]s\nimage-endpoint: %[1]s\n", socket)
}
