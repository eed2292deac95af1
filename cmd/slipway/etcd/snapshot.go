// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

func newSnapshot(g *cli.Globals) *cobra.Command {
	return cli.Group("snapshot", "Save etcd to files, and look after them", newSave(g), newList(g), newVerify(g), newPrune(g))
}

// bindDir adds the flag --dir.
func bindDir(fs *pflag.FlagSet, dir *string) {
	fs.StringVar(dir, "dir", snapshots.Dir, "`directory` of the snapshots")
}

// run calls do with the parts of a command, and with the directory as an absolute path.
func run(cmd *cobra.Command, g *cli.Globals, dir string, do func(p *env.Parts, dir string) error) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	p, err := env.NewRunningControlPlaneParts(cmd, g)
	if err != nil {
		return err
	}
	defer p.Close()
	return do(p, dir)
}

func newSave(g *cli.Globals) *cobra.Command {
	o, seal := snapshot.Options{}, sealing{}
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save etcd to a file, with a record beside it, and print its path",
		Long: "Save etcd to a file, with a record beside it, and print its path.\n\n" +
			"The snapshot comes from a healthy member, if possible not the leader, and is read back from the disk and verified. The\n" +
			"record says which cluster and versions the snapshot comes from, and which CAs and encryption keys its objects need. Without a\n" +
			"quorum, and without the API, any member that answers is saved. The snapshot holds every Secret of the cluster.\n\n" +
			"With --with-pki, the file also has this control plane's certificates, keys and configuration, enough for a bare host to\n" +
			"take its place. It's encrypted with age, to public keys or a passphrase; `age --decrypt` and tar can open it, too.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("upload") && strings.TrimSpace(o.Upload) == "" {
				return errors.New("--upload needs the command of a program, such as 'rclone copy {} remote:cluster-1'")
			}
			if err := seal.check(); err != nil {
				return err
			}
			return run(cmd, g, o.Dir, func(p *env.Parts, dir string) (err error) {
				o.Dir, o.Slipway = dir, g.Version()
				if o.Recipients, err = seal.recipients(p.Env.Host); err != nil {
					return err
				}
				path, err := snapshot.Save(cmd.Context(), p.Env, o)
				if err != nil {
					return err
				}
				return g.Result(path + "\n")
			})
		},
	}
	bindDir(cmd.Flags(), &o.Dir)
	seal.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.Upload, "upload", "", "`command` that uploads the snapshot, then its record: split at spaces, without a shell; {} is the file's path")
	cmd.Flags().BoolVar(&o.InTurn, "in-turn", false, "for timers: wait for this host's turn, so that control planes do not save etcd at the same time, and fail if no member is healthy")
	return cmd
}

func newVerify(g *cli.Globals) *cobra.Command {
	dir, keys := "", env.Opening{}
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Read snapshots, by default all of this host's, and compare them with their records",
		Long: "Read snapshots, by default all of this host's, and compare them with their records.\n\n" +
			"It needs no etcd. Snapshots without a record, such as those of `etcdctl snapshot save`, are verified, too. Encrypted ones\n" +
			"are also read inside if there's a private key or a passphrase.",
		Args: cli.Takes(0, cli.AnyNumber),
		RunE: func(cmd *cobra.Command, files []string) error {
			return runAnywhere(g, dir, func(e *step.Env, dir string) error {
				with, err := keys.Identities(e.Host)
				if err != nil {
					return err
				}
				return verifyAll(g, e, dir, files, with)
			})
		},
	}
	bindDir(cmd.Flags(), &dir)
	keys.Bind(cmd.Flags())
	return cmd
}

func newPrune(g *cli.Globals) *cobra.Command {
	dir, policy := "", snapshots.Policy{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove this host's old snapshots",
		Long: "Remove this host's old snapshots.\n\n" +
			"It keeps the newest snapshots, and one per day. Before anything is removed, the newest snapshot is verified. Files without\n" +
			"a record, and other hosts' snapshots, stay.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if policy.Newest < 1 || policy.Days < 0 {
				return fmt.Errorf("--keep=%d --keep-days=%d: --keep must be at least 1, and --keep-days at least 0", policy.Newest, policy.Days)
			}
			return run(cmd, g, dir, func(p *env.Parts, dir string) error {
				if err := snapshot.Prune(cmd.Context(), p.Env, dir, policy); err != nil {
					return err
				}
				return p.Show(func() error { return nil })
			})
		},
	}
	config.Bind(cmd.Flags(), "etcd snapshot prune", nil)
	bindDir(cmd.Flags(), &dir)
	cmd.Flags().IntVar(&policy.Newest, "keep", 5, "number of newest snapshots to keep")
	cmd.Flags().IntVar(&policy.Days, "keep-days", 7, "number of days, in UTC and including today, of which to keep the newest snapshot")
	return cmd
}
