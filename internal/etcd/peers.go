// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/parallel"
)

// Peer is the result of asking a peer URL.
type Peer struct {
	URL string
	// Members are all the members known to the etcd there, with itself. If Err is set, no etcd has answered.
	Members []Member
	Err     error
}

// Alive reports whether something at the URL accepts connections. It's the etcd, even if its answer is of no use: a certificate may have
// expired, or this host's clock may be wrong.
func (p Peer) Alive() bool { return p.Err == nil || errors.As(p.Err, new(AcceptedError)) }

// Silent reports whether nobody answers at the URL: no packet comes back, or no host has the address. Other failures, such as a refused
// connection, a firewall's rejection or an unknown name, say nothing about the member.
func (p Peer) Silent() bool { return !p.Alive() && errors.As(p.Err, new(dial.SilentError)) }

// BestAnswer returns the answer that says most about a member with several peer URLs: it's silent only if all are.
func BestAnswer(peers []Peer) Peer {
	for _, better := range []func(Peer) bool{func(p Peer) bool { return p.Err == nil }, Peer.Alive, func(p Peer) bool { return !p.Silent() }} {
		if i := slices.IndexFunc(peers, better); i >= 0 {
			return peers[i]
		}
	}
	return peers[0]
}

// AcceptedError is an error after the other side has accepted the connection.
type AcceptedError struct{ Err error }

func (e AcceptedError) Error() string { return e.Err.Error() }

func (e AcceptedError) Unwrap() error { return e.Err }

// ErrNotAsked is the error of a plan, which sends nothing.
var ErrNotAsked = errors.New("a plan asks no member of etcd")

// peerMembers is the path at which a member lists the members to its peers. A joining member asks there.
const peerMembers = "/members"

func (r *Real) Peers(ctx context.Context, urls []string) []Peer {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return parallel.Map(urls, 0, func(url string) Peer {
		members, err := r.peer(ctx, url)
		return Peer{url, members, err}
	})
}

// peer asks the etcd at a peer URL. The server's certificate must come from etcd's CA, unless the URL is of http.
func (r *Real) peer(ctx context.Context, url string) ([]Member, error) {
	trust, err := r.tls()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+peerMembers, nil)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	conn, err := dial.TCP(ctx, request.URL.Host)
	if err != nil {
		return nil, errors.WithMessage(err, strings.TrimPrefix(url, scheme))
	}
	defer conn.Close()
	accepted := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	transport := &http.Transport{TLSClientConfig: trust, DialContext: accepted, DisableKeepAlives: true} // and no proxy
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, AcceptedError{errors.Wrap(err, strings.TrimPrefix(url, scheme))}
	}
	defer answer.Body.Close()
	return readPeer(answer), nil
}

// readPeer reads an answer. Whatever it says, the member runs.
func readPeer(answer *http.Response) (members []Member) {
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(answer.Body, most))
	var list []storedMember
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(data, &list) != nil {
		return nil
	}
	for _, m := range list {
		members = append(members, m.member())
	}
	return members
}

// ErrOpen is the error of StoredMembers if an etcd has the database open.
var ErrOpen = errors.New("an etcd has it open")

// StoredMembers reads the members from the database of a stopped etcd: the file snap/db in its directory `member`.
func StoredMembers(f *os.File) (members []Member, err error) {
	err = readDatabase(f, func(tx *bbolt.Tx) (err error) {
		if tx.Bucket(membersBucket) == nil {
			return errors.Errorf("it has no bucket %q", membersBucket)
		}
		members, err = membersIn(tx)
		return err
	})
	return members, err
}

// readDatabase opens the database of a stopped etcd. The error is ErrOpen while an etcd has it open.
func readDatabase(f *os.File, read func(*bbolt.Tx) error) error {
	db, err := openDatabase(f, &bbolt.Options{ReadOnly: true})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = ErrOpen
	}
	if err != nil {
		return errors.Wrap(err, f.Name())
	}
	defer func() {
		_ = db.Close()
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // bbolt leaves that to the closing of f, and an etcd may start earlier
	}()
	err = db.View(func(tx *bbolt.Tx) (err error) {
		defer recoverDamage(&err)()
		return read(tx)
	})
	return errors.Wrap(err, f.Name())
}
