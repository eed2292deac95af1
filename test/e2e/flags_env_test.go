// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
)

// readsFlagsEnv checks kubeadm-flags.env with the systemd of a node: whatever the values are, the process gets exactly
// these words. It also checks the unit tests' model of systemd with the same values.
func readsFlagsEnv(m machine) {
	m.write("/run/systemd/system/words@.service", `[Service]
Type=oneshot
EnvironmentFile=/run/words/%i.env
ExecStart=/usr/bin/printf '%%s\\0' $KUBELET_KUBEADM_ARGS
StandardOutput=truncate:/run/words/%i.out
`)
	const files = 60
	random := rand.New(rand.NewPCG(1, 2))
	var units []string
	wanted := make([][]string, files)
	for i := range files {
		n := config.Node{Name: "a", Hostname: "b", KubeletExtraArgs: []config.Arg{{Name: "last", Value: "1"}}}
		for range 4 {
			n.KubeletExtraArgs = append(n.KubeletExtraArgs, config.Arg{Name: "v", Value: awkward(random)})
		}
		data, err := kubeletconfig.FlagsEnv(&n)
		if err != nil {
			m.Fatal(err)
		}
		m.write(fmt.Sprintf("/run/words/%d.env", i), string(data))
		wanted[i] = kubeletconfig.Flags(&n)
		units = append(units, fmt.Sprintf("words@%d", i))
	}
	m.must("systemctl", "daemon-reload")
	m.must(append([]string{"systemctl", "start"}, units...)...)
	for i, want := range wanted {
		out, err := m.node.ReadFile(fmt.Sprintf("/run/words/%d.out", i))
		if err != nil {
			m.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if !slices.Equal(got, want) {
			m.Errorf("systemd reads %q\nwant %q", got, want)
		}
	}
}

// awkward is a value full of characters that mean something to systemd or a shell.
func awkward(random *rand.Rand) string {
	parts := []string{" ", "  ", "'", `"`, `\`, `\\`, "$", "$$", "${HOME}", "$HOME", "%", "%n", "%%", "#", ";", "=", "`", "\u00a0", "é", "a", "b=c", "\\n", "\\x41", "\\ ", "{}", "|", "&", "*", "~", "@", "-", "!", "+", ":"}
	var b strings.Builder
	for range random.IntN(8) {
		b.WriteString(parts[random.IntN(len(parts))])
	}
	return b.String()
}
