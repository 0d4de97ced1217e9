//go:build unix

package databases_test

import (
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// sqlite opens a new database in a file. Its transactions wait for each other.
func sqlite(t *testing.T) *sql.DB {
	t.Helper()
	return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "orders.db")+"?_pragma=busy_timeout(60000)&_txlock=immediate")
}

func open(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// postgres starts a PostgreSQL, which listens on a socket in a directory of its own.
func postgres(t *testing.T) *sql.DB {
	t.Helper()
	bin := installed(t, "initdb", "postgres")
	d := newServer(t)
	d.run(filepath.Join(bin, "initdb"), "--no-sync", "--auth=trust", "--username=redlatch", "--pgdata="+d.data())
	d.start(filepath.Join(bin, "postgres"), "-D", d.data(), "-k", d.dir, "-h", "", "-F")
	return d.answering("postgres", "host="+d.dir+" user=redlatch dbname=postgres sslmode=disable")
}

// mysql starts a MariaDB in the same way. Its driver is told to count rows that a statement has found, and not only those
// that it has changed.
func mysql(t *testing.T) *sql.DB {
	t.Helper()
	bin := installed(t, "mariadb-install-db", "mariadbd")
	d := newServer(t)
	d.run(filepath.Join(bin, "mariadb-install-db"), "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", "--datadir="+d.data())
	socket := filepath.Join(d.dir, "s")
	daemon, err := exec.LookPath("mariadbd")
	require.NoError(t, err)
	d.start(daemon, "--no-defaults", "--skip-networking", "--datadir="+d.data(), "--socket="+socket, "--pid-file="+filepath.Join(d.dir, "pid"))
	db := d.answering("mysql", "root@unix("+socket+")/mysql?clientFoundRows=true")
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE redlatch")
	require.NoError(t, err)
	return open(t, "mysql", "root@unix("+socket+")/redlatch?clientFoundRows=true")
}

// installed returns the directory of the first program. It skips the test if one is missing.
func installed(t *testing.T, programs ...string) string {
	t.Helper()
	first := ""
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			newest, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
			if len(newest) == 0 {
				t.Skipf("%s is not installed: test skipped", program)
			}
			path = newest[len(newest)-1]
		}
		if first == "" {
			path, err = filepath.EvalSymlinks(path)
			require.NoError(t, err)
			first = filepath.Dir(path)
		}
	}
	return first
}

// A server keeps its data in a directory of its own. It runs as another user if this one is root, which it would refuse.
type server struct {
	t    *testing.T
	dir  string
	user *syscall.Credential
}

func newServer(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "databases") //nolint:usetesting // another user must reach it, and a socket needs a short path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &server{t: t, dir: dir}
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		id, err := strconv.Atoi(nobody.Uid)
		require.NoError(t, err)
		d.user = &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}
		require.NoError(t, os.Chown(dir, id, id))
	}
	return d
}

func (d *server) data() string { return filepath.Join(d.dir, "data") }

func (d *server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = d.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.user}
	return cmd
}

func (d *server) run(program string, args ...string) {
	d.t.Helper()
	output, err := d.command(program, args...).CombinedOutput()
	require.NoError(d.t, err, "%s", output)
}

// start starts a server that ends with the test.
func (d *server) start(program string, args ...string) {
	d.t.Helper()
	cmd := d.command(program, args...)
	log, err := os.Create(filepath.Join(d.dir, "log"))
	require.NoError(d.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(d.t, cmd.Start())
	d.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
	})
}

// answering returns the database when it answers.
func (d *server) answering(driver, source string) *sql.DB {
	d.t.Helper()
	db := open(d.t, driver, source)
	for begin := time.Now(); db.PingContext(d.t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			log, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			require.Fail(d.t, "no answer", "%s", log)
		}
	}
	return db
}
