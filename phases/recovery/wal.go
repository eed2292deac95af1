// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/phases/step"
)

// logEnd is what's at the end of this host's log.
type logEnd struct {
	member, index, term, committed uint64
	// uncertain changes may not be committed. pending ones aren't in the database, and belong there. While etcd runs, running is set:
	// a committed change may be pending, too, if etcd has to be killed.
	uncertain, pending int
	running            bool
	// corrupt is set if etcd has the alarm CORRUPT.
	corrupt bool
	// size is the database's, in bytes.
	size int64
}

func (e logEnd) String() string {
	text := fmt.Sprintf("This host's log ends at term %d, entry %d.", e.term, e.index)
	if e.uncertain > 0 {
		text += fmt.Sprintf(" %s after entry %d may be uncommitted: it isn't known whether clients were told of their success.", changes(e.uncertain), e.committed)
	}
	return text
}

// copies is how many copies of the data have to fit beside it: the new data, and a copy in which etcd replays its log.
func (e logEnd) copies() uint64 {
	if e.pending > 0 || e.running {
		return 2
	}
	return 1
}

func changes(n int) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}

// files are a member's open database and log.
type files struct {
	database *os.File
	log      []*os.File
}

// openData opens the files in a directory `member`.
func openData(env *step.Env, member string) (f files, err error) {
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.database, err = env.Host.Open(filepath.Join(member, "snap", "db")); err != nil {
		return f, err
	}
	dir := filepath.Join(member, "wal")
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return f, err
	}
	for _, e := range entries { // sorted, so they're in order
		if !strings.HasSuffix(e.Name(), ".wal") {
			continue
		}
		opened, err := env.Host.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return f, err
		}
		f.log = append(f.log, opened)
	}
	return f, nil
}

func (f files) close() {
	for _, opened := range append(f.log, f.database) {
		_ = opened.Close() // they were only read
	}
}

// withSurvivor calls do with the data of a stopped etcd.
func (r *Recovery) withSurvivor(env *step.Env, member string, do func(*etcd.Survivor) error) error {
	f, err := openData(env, member)
	if err != nil {
		return err
	}
	defer f.close()
	s, err := etcd.ReadSurvivor(f.database, f.log, !r.Drop)
	if err != nil {
		return err
	}
	return do(s)
}

// readLog reads the end of this host's log. While etcd runs, its database can't be read; when it stops in time, it adds all committed
// entries.
func (r *Recovery) readLog(env *step.Env) error {
	err := r.withSurvivor(env, r.replacement.Data, func(s *etcd.Survivor) error {
		r.end = logEnd{member: s.Member, index: s.Index, term: s.Term, committed: max(s.Committed, s.Applied), uncertain: s.Uncertain(s.Applied), pending: s.Pending(),
			corrupt: slices.Contains(s.Alarms, "CORRUPT")}
		return nil
	})
	if errors.Is(err, etcd.ErrOpen) {
		err = r.readLogAlone(env)
	}
	if err != nil {
		return err
	}
	info, err := env.Host.Stat(filepath.Join(r.replacement.Data, "snap", "db"))
	if err == nil {
		r.end.size = info.Size()
	}
	return err
}

func (r *Recovery) readLogAlone(env *step.Env) error {
	f, err := openData(env, r.replacement.Data)
	if err != nil {
		return err
	}
	defer f.close()
	l, err := etcd.ReadLog(f.log, math.MaxUint64)
	if err != nil {
		return err
	}
	r.end = logEnd{member: l.Member, index: l.Index, term: l.Term, committed: l.Committed, uncertain: l.Uncertain(0), running: true}
	if !r.Drop {
		r.end.pending = r.end.uncertain
	}
	return nil
}
