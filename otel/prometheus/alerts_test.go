package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/otel"
)

// A program has locks, and serves metrics of them.
type program struct {
	redis  *miniredis.Miniredis
	hooks  redlatch.Hooks
	locker redlatch.Locker
	server *httptest.Server
}

func newProgram(t *testing.T) *program {
	t.Helper()
	registry := client.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	require.NoError(t, err)
	provider := redlatchotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)))
	p := &program{redis: miniredis.RunT(t), server: httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))}
	t.Cleanup(p.server.Close)
	kind := redlatchotel.WithKeyAttribute(func(string) string { return "all" })
	p.hooks, err = redlatchotel.Hooks(provider, kind)
	require.NoError(t, err)
	connection := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	t.Cleanup(func() { _ = connection.Close() })
	inside, err := redlatch.NewSetNXPX(connection, redlatch.WithHooks(p.hooks))
	require.NoError(t, err)
	p.locker, err = redlatchotel.Locker(inside, provider, kind)
	require.NoError(t, err)
	return p
}

// get returns the answer of a server.
func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url) //nolint:gosec,noctx // of this machine
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

// expressions are those of the rules and of the dashboard.
func expressions(t *testing.T) []string {
	t.Helper()
	rules, err := os.ReadFile("../alerts.yml")
	require.NoError(t, err)
	text, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	all := []string{string(rules)}
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// TestNamedMetricsExist: a program records each metric and each label that the rules, the dashboard
// and the README name.
func TestNamedMetricsExist(t *testing.T) {
	p := newProgram(t)
	lock, err := p.locker.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	p.hooks.Trouble(t.Context(), redlatch.Event{Strategy: "redlock", Node: "a", Cause: "timeout"})
	p.hooks.Acquired(t.Context(), redlatch.Event{Strategy: "setnxpx", Lead: true})
	served := get(t, p.server.URL)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`\bredlatch_\w+`)
	total := 0
	for _, expression := range append(expressions(t), string(readme)) {
		for _, name := range names.FindAllString(expression, -1) {
			require.Regexp(t, `\b`+name+`\b`, served, expression)
			total++
		}
	}
	require.Greater(t, total, 20)
}

// TestRulesAreValid: promtool says so. Each of them has a page that says what to do.
func TestRulesAreValid(t *testing.T) {
	requireInstalled(t, "promtool")
	output, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", "../alerts.yml").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "5 rules found")
	rules, err := os.ReadFile("../alerts.yml")
	require.NoError(t, err)
	pages := regexp.MustCompile(`docs/operations\.md#([a-z-]+)`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, pages, 5)
	operations, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, page := range pages {
		require.Contains(t, strings.ToLower(strings.ReplaceAll(string(operations), " ", "-")), "##-"+page[1]+"\n")
	}
}

// TestRulesAlertOnWhatTheyName: promtool runs the cases of testdata/rules.yml.
func TestRulesAlertOnWhatTheyName(t *testing.T) {
	requireInstalled(t, "promtool")
	output, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", "testdata/rules.yml").CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func requireInstalled(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("REDLATCH_REQUIRE_PROMETHEUS") != "" {
			t.Fatal(program, "is not installed")
		}
		t.Skip(program, " is not installed (Debian: apt-get install prometheus): test skipped")
	}
}

// TestAlertsFire: Prometheus scrapes a program in which one lock is lost and one call waits. The
// two alerts fire, and no other, though a follower of Lead waits for longer. The rules are those of
// alerts.yml with shorter times.
func TestAlertsFire(t *testing.T) {
	requireInstalled(t, "prometheus")
	p := newProgram(t)
	held, err := p.locker.TryLock(t.Context(), "held")
	require.NoError(t, err)
	lost, err := p.locker.TryLock(t.Context(), "lost")
	require.NoError(t, err)
	leading, err := p.locker.TryLock(t.Context(), "lead")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { // ends with ctx
		followed <- redlatch.Lead(ctx, p.locker, "lead", func(context.Context, *redlatch.Lock) error { return nil })
	}()
	server := startPrometheus(t, strings.TrimPrefix(p.server.URL, "http://"))
	query := func(expression string) string {
		return get(t, server+"/api/v1/query?query="+url.QueryEscape(expression))
	}
	require.Eventually(t, func() bool {
		return strings.Contains(query(`count_over_time(redlatch_lock_losses_total{redlatch_outcome="lost"}[1m]) >= 2`), `"job"`)
	}, time.Minute, 100*time.Millisecond, "scraped")
	require.Eventually(t, func() bool {
		return strings.Contains(query(`redlatch_lock_wait_oldest_seconds{redlatch_lead="true"} > 5`), `"job"`)
	}, time.Minute, 100*time.Millisecond, "the follower has waited for longer than an alert takes")
	require.Empty(t, firing(t, server))

	cancel()
	require.ErrorIs(t, <-followed, context.Canceled)
	require.NoError(t, leading.Unlock(t.Context()))

	p.redis.Del("lost")
	require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
	waited := make(chan error, 1)
	go func() { // ends with the lock
		next, err := p.locker.Lock(t.Context(), "held")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		waited <- err
	}()
	want := []string{"RedlatchLockLost", "RedlatchWaitTooLong"}
	require.Eventually(t, func() bool { return slices.Equal(want, firing(t, server)) }, time.Minute, 100*time.Millisecond,
		"they fire, and no other")
	require.NoError(t, held.Unlock(t.Context()))
	require.NoError(t, <-waited)
	require.Eventually(t, func() bool { return slices.Equal(want[:1], firing(t, server)) }, time.Minute, 100*time.Millisecond, "nobody waits any more")
}

// firing returns the alerts that fire, sorted.
func firing(t *testing.T, server string) (names []string) {
	t.Helper()
	var reply struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(get(t, server+"/api/v1/alerts")), &reply))
	for _, alert := range reply.Data.Alerts {
		if alert.State == "firing" {
			names = append(names, alert.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// startPrometheus starts a Prometheus that scrapes target once a second, and returns its address.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("../alerts.yml")
	require.NoError(t, err)
	shorter := regexp.MustCompile(`(?m)^( +for: )1m$`).ReplaceAllString(string(rules), "${1}1s")
	for _, shorten := range [][2]string{{"interval: 15s", "interval: 1s"}, {`wait_oldest_seconds{redlatch_lead=""}) > 60`, `wait_oldest_seconds{redlatch_lead=""}) > 2`}} {
		require.Contains(t, shorter, shorten[0])
		shorter = strings.Replace(shorter, shorten[0], shorten[1], 1)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs: [{job_name: program, metrics_path: /, static_configs: [{targets: ['%s']}]}]
`, target)
	for name, text := range map[string]string{"rules.yml": shorter, "prometheus.yml": config} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", addr, "--log.level", "warn")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool { return strings.Contains(get(t, "http://"+addr+"/-/ready"), "Ready") }, time.Minute, 50*time.Millisecond)
	return "http://" + addr
}
