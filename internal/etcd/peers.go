// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

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
	// Cluster is the ID of its etcd cluster; 0 if it doesn't say.
	Cluster uint64
	Err     error
	// Stranger is set if something accepts connections there, and shows neither a certificate from etcd's CA nor, without TLS, a
	// cluster's ID. It may be anything.
	Stranger bool
}

// Foreign reports whether something accepts connections at the URL, and isn't known to be a member of the cluster with this ID: it's a
// Stranger, or names another cluster. An ID of 0 is unknown.
func (p Peer) Foreign(cluster uint64) bool {
	return p.Alive() && (p.Stranger || cluster != 0 && p.Cluster != 0 && p.Cluster != cluster)
}

// Lacks reports whether an etcd of this host's CA answers at the URL, and the member with this ID isn't among its members. An ID of 0 is
// unknown.
func (p Peer) Lacks(id uint64) bool {
	return id != 0 && p.Err == nil && !p.Stranger && len(p.Members) > 0 &&
		!slices.ContainsFunc(p.Members, func(m Member) bool { return m.ID == id })
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

// clusterHeader has the ID of the etcd cluster in such an answer.
const clusterHeader = "X-Etcd-Cluster-ID"

func (r *Real) Peers(ctx context.Context, urls []string) []Peer {
	ctx, cancel := context.WithTimeout(ctx, r.answerTime())
	defer cancel()
	return parallel.Map(urls, 0, func(url string) Peer {
		p := Peer{URL: url}
		p.Err = r.askPeer(ctx, &p)
		return p
	})
}

// askPeer asks the etcd at a peer URL. The server's certificate must come from etcd's CA, unless the URL is of http.
func (r *Real) askPeer(ctx context.Context, p *Peer) error {
	trust, err := r.tls()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/")+peerMembers, nil)
	if err != nil {
		return errors.WithStack(err)
	}
	conn, err := dial.TCP(ctx, request.URL.Host)
	if err != nil {
		return errors.WithMessage(err, strings.TrimPrefix(p.URL, scheme))
	}
	defer conn.Close()
	var trusted atomic.Bool
	trust.VerifyConnection = func(tls.ConnectionState) error { trusted.Store(true); return nil }
	accepted := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	transport := &http.Transport{TLSClientConfig: trust, DialContext: accepted, DisableKeepAlives: true} // and no proxy
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		p.Stranger = ctx.Err() == nil && !trusted.Load() && !isIssuedBy(trust.RootCAs, err) // an etcd that hangs accepts connections, too
		return AcceptedError{errors.Wrap(err, strings.TrimPrefix(p.URL, scheme))}
	}
	defer answer.Body.Close()
	p.Members, p.Cluster = readPeer(answer)
	p.Stranger = !trusted.Load() && p.Cluster == 0
	return nil
}

// isIssuedBy reports whether a certificate that TLS has refused is from one of the CAs all the same: it has expired, or is for another
// address.
func isIssuedBy(cas *x509.CertPool, err error) bool {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || cas == nil || len(refused.UnverifiedCertificates) == 0 {
		return false
	}
	leaf, between := refused.UnverifiedCertificates[0], x509.NewCertPool()
	for _, c := range refused.UnverifiedCertificates[1:] {
		between.AddCert(c)
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: cas, Intermediates: between, CurrentTime: leaf.NotBefore, KeyUsages: usages})
	return err == nil
}

// readPeer reads an answer. Whatever it says, the member runs.
func readPeer(answer *http.Response) (members []Member, cluster uint64) {
	const most = 1 << 20
	cluster, _ = strconv.ParseUint(answer.Header.Get(clusterHeader), 16, 64)
	data, err := io.ReadAll(io.LimitReader(answer.Body, most))
	var list []storedMember
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(data, &list) != nil {
		return nil, cluster
	}
	for _, m := range list {
		members = append(members, m.member())
	}
	return members, cluster
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
