// Package redisurl makes clients from the URLs that the command redlatch takes, and tests that run
// on a server of yours.
package redisurl

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Escapes says what to do about special characters.
const Escapes = "special characters in a password must be percent-encoded, such as %40 for @, %2F for / and %23 for #"

// Forms are the forms of a URL.
const Forms = "redis://HOST:PORT/DB, unix:///PATH?db=DB, redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB or " +
	"redis+cluster://HOST:PORT,HOST:PORT. For TLS, write rediss in place of redis"

// neverAgain is the MaxRetries of a client that sends a command once. It also tries only once to
// connect: redlatch tries again itself, and so learns the reason before the op timeout, such as an
// unknown certificate or Sentinels that are unreachable.
const neverAgain = -1

// ErrNoTLS says that a certificate was given for a URL whose connections have no TLS.
var ErrNoTLS = errors.New("the URL is not one for TLS")

// NewClient returns a client of the server, or of the servers, that a URL names. It shows the
// servers a certificate, unless that is nil. It sends nothing.
func NewClient(text string, certificate *tls.Certificate) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if _, fragment, _ := strings.Cut(rest, "#"); strings.Contains(fragment, "@") { // else the user would count as the host
		return nil, errors.New("a password with a #")
	}
	if u, err := url.Parse(text); scheme == "unix" && err == nil && u.Host != "" {
		return nil, errors.New("a host before the path of a socket")
	}
	switch scheme {
	case "redis+sentinel":
		o, err := sentinels(rest)
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.DialerRetries = neverAgain, 1
		return redis.NewFailoverClient(o), show(certificate, o.TLSConfig)
	case "redis+cluster", "rediss+cluster":
		o, err := nodesOfCluster(strings.TrimSuffix(scheme, "+cluster"), rest)
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.DialerRetries = neverAgain, 1
		return redis.NewClusterClient(o), show(certificate, o.TLSConfig)
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries = neverAgain, 1
	return redis.NewClient(o), show(certificate, o.TLSConfig)
}

// show adds a certificate, unless it is nil, to what the connections of a client show.
func show(certificate *tls.Certificate, connections *tls.Config) error {
	switch {
	case certificate == nil:
	case connections == nil:
		return ErrNoTLS
	default:
		connections.Certificates = []tls.Certificate{*certificate}
	}
	return nil
}

// nodesOfCluster parses user:password@host:port,host:port. A Cluster has no other database than 0.
func nodesOfCluster(scheme, text string) (*redis.ClusterOptions, error) {
	text, query, _ := strings.Cut(text, "?")
	authority, db, _ := strings.Cut(text, "/")
	if db != "" && db != "0" {
		return nil, errors.New("a Cluster has only the database 0")
	}
	at := strings.LastIndex(authority, "@") + 1
	addrs := strings.Split(authority[at:], ",")
	for _, addr := range addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	settings, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	settings["addr"] = addrs[1:]
	return redis.ParseClusterURL(scheme + "://" + authority[:at] + addrs[0] + "?" + settings.Encode())
}

// sentinels parses user:password@host:port,host:port/NAME/db. The user and the password are those
// of the Redis servers. Those of the Sentinels are the settings sentinel_username and
// sentinel_password.
func sentinels(text string) (*redis.FailoverOptions, error) {
	text, query, _ := strings.Cut(text, "?")
	authority, path, _ := strings.Cut(text, "/")
	name, db, _ := strings.Cut(path, "/")
	at := strings.LastIndex(authority, "@") + 1
	addrs := strings.Split(authority[at:], ",")
	if _, _, err := net.SplitHostPort(addrs[0]); err != nil || name == "" || strings.Contains(path, "@") {
		return nil, errors.New("the first port or NAME is missing")
	}
	settings, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	username, password := settings.Get("sentinel_username"), settings.Get("sentinel_password")
	settings.Del("sentinel_username")
	settings.Del("sentinel_password")
	settings.Set("master_name", name)
	settings["addr"] = addrs[1:]
	o, err := redis.ParseFailoverURL("redis://" + authority[:at] + addrs[0] + "/" + db + "?" + settings.Encode())
	if err != nil {
		return nil, err
	}
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	o.SentinelUsername, o.SentinelPassword = username, password
	return o, nil
}

// Unescaped reports whether a URL has, before the last @, what must be percent-encoded in a user or a
// password.
func Unescaped(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return false
	}
	_, err := url.PathUnescape(rest[:at])
	return err != nil || strings.ContainsAny(rest[:at], "@/?#")
}
