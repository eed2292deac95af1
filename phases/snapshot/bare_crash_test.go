// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var bareScenario = phasetest.Scenario{Name: "init-restore", Prepare: prepareBare, Run: runBare, Reads: "/etc/kubernetes/kubelet.conf",
	Renews: []string{phasetest.LeaseWrite}}

const (
	sealedFile = "/root/snapshot" + snapshots.SealedExtension
	keyFile    = "/root/identity"
)

// seal seals the snapshot with the files of a control plane.
func seal(h *phasetest.LastingHost) error {
	n, err := nodeOf(h)
	if err != nil {
		return err
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	_, document, _ := strings.Cut(phasetest.CrashDocuments, betweenDocuments)
	env := &step.Env{Config: n, Host: h, Etcd: h.Members(), Cluster: configuredAPI{document: document}, UI: phasetest.QuietUI()}
	path, err := Save(context.Background(), env, Options{Dir: "/root", Recipients: snapshots.Recipients{key.Recipient()}})
	if err != nil {
		return err
	}
	return errors.Join(os.Rename(h.Root+path, h.Root+sealedFile), os.WriteFile(h.Root+keyFile, []byte(key.String()), 0o600))
}

// prepareBare makes a host with a sealed snapshot, and nothing else. The API has the snapshot's objects.
func prepareBare(t *testing.T, s *phasetest.Scene) error {
	made, err := savedPlane.Made(t)
	if err != nil {
		return err
	}
	s.Serves(made.Objects)
	s.API.SpoilFirst(renewsLeases)
	files := maps.Clone(made.Files)
	for path := range files {
		if !strings.HasPrefix(path, "/root") {
			delete(files, path)
		}
	}
	return errors.Join(files.Write(s.Root), phasetest.WillMake(s.Root, phasetest.KubeletPEM, phasetest.RotatedPEM(t, "cp-1", time.Now().Add(time.Hour))))
}

// runBare runs the command until it has succeeded once. The cluster's configuration is only in the snapshot.
func runBare(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	with, err := snapshots.ReadIdentities(h, keyFile, "")
	if err != nil {
		return err
	}
	from := Source{File: sealedFile, With: with}
	restored, err := Configuration(h, from)
	if err != nil || restored == nil {
		return cmp.Or(err, errors.New("the snapshot has no configuration"))
	}
	document, _, _ := strings.Cut(phasetest.CrashDocuments, betweenDocuments)
	n, _, err := config.LoadInit(ctx, &config.Source{Name: "init.yaml", Data: []byte(document)}, config.InitFlags{}, config.Options{
		Facts:    config.HostFacts{Hostname: "cp-1"},
		NewToken: func() (string, string) { return "abcdef", strings.Repeat("a", 16) },
		Restored: restored,
	})
	if err != nil {
		return err
	}
	exists := func(path string) bool {
		_, err := h.Lstat(path)
		return err == nil
	}
	data := exists(filepath.Join(n.Cluster.Etcd.Local.DataDir, thisnode.EtcdMemberDir))
	if exists("/etc/kubernetes/manifests/etcd.yaml") && !data {
		return errors.New("had the node been booted now, etcd would have begun a cluster without data")
	}
	if data && !exists(node.EtcdJournalPath(n.Paths)) {
		return nil
	}
	n.IgnorePreflightErrors = append(n.IgnorePreflightErrors, strings.ToLower(fault.EtcdOtherMembers))
	env := &step.Env{Config: n, Host: h, Etcd: h.Members(), UI: phasetest.QuietUI()}
	b, err := NewBareHost(env, from)
	if err != nil {
		return err
	}
	b.Prepare(env)
	h.Plans = func(e *step.Env) { e.Rerun = env.Rerun }
	return phasetest.CrashRun(ctx, env.Config, h, endpoint, say, b.AddTo(bootstrap.Init()), nil)
}
